"""Control tokens that clients write into their texts, kept from controlling anything.

A user may send "<|im_end|>" as text: in a log, in a question about templates, in an attack. The
template writes the same string where it means the token, and the tokenizer cannot tell the two
apart. So a mark, a character that no text of the request has, is put inside every such string
before rendering; the tokenizer later removes it and encodes what is around it as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from bushel.core import RequestError

# Private-use characters: they mean nothing, and templates leave them alone.
_MARKS = (*range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE))


class ControlTokens:
    """Marks control strings in what one request says. `mark` is empty if it says none."""

    def __init__(self, content: Any, controls: Iterable[str]):
        texts = list(_texts(content))
        present = {control for control in controls if any(control in text for text in texts)}
        self.mark = ""
        if present:
            everything = set().union(*texts)
            self.mark = next((chr(mark) for mark in _MARKS if chr(mark) not in everything), "")
            if not self.mark:
                raise RequestError("The texts use every private character there is.")
            longest_first = sorted(present, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def apply(self, value: Any) -> Any:
        """A text with every control string marked; so too inside lists and objects."""
        if not self.mark:
            return value
        if isinstance(value, str):
            return self._pattern.sub(lambda match: match[0][0] + self.mark + match[0][1:], value)
        if isinstance(value, Mapping):
            return {self.apply(key): self.apply(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.apply(item) for item in value]
        return value


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
