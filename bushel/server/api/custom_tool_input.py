"""The text that a model puts into the one parameter of a custom tool, as it comes.

{"input": "*** Begin Patch\n…"}      fragments of JSON ─> the text inside the string
"""

from __future__ import annotations

import json
import re
from typing import Any

_BEGIN = re.compile(r'\s*\{\s*"input"\s*:\s*"')
# Text up to where an escape, or the first half of a surrogate pair, is not complete.
_WHOLE = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|'
    r"\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*"
)


class InputText:
    """Feed it fragments; `text` is all that was made of them."""

    def __init__(self) -> None:
        self._raw: list[str] = []
        self._rest = ""
        self._inside = False  # the string has begun
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def feed(self, fragment: str) -> str:
        """What the fragment adds to the text."""
        self._raw.append(fragment)
        self._rest += fragment
        if not self._inside:
            begin = _BEGIN.match(self._rest)
            if begin is None:
                return ""
            self._inside, self._rest = True, self._rest[begin.end() :]
        complete = _WHOLE.match(self._rest)
        assert complete is not None
        self._rest = self._rest[complete.end() :]
        return self._add(_unescaped(complete[0]))

    def finish(self) -> str:
        """What is left: all of it, where the model did not write what it was asked for."""
        return "" if self._inside else self._add(_loose("".join(self._raw)))

    def _add(self, text: str) -> str:
        self._texts.append(text)
        return text


def _unescaped(piece: str) -> str:
    try:
        return str(json.loads(f'"{piece}"', strict=False))
    except ValueError:
        return piece


def _loose(raw: str) -> str:
    try:
        value: Any = json.loads(raw)
    except ValueError:
        return raw
    if isinstance(value, dict):
        value = value.get("input", next(iter(value.values())) if len(value) == 1 else None)
    return value if isinstance(value, str) else raw
