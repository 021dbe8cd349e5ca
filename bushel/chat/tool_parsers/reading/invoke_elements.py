"""Calls as elements with attributes, one for each call and one for each argument.

<minimax:tool_call>
<invoke name="read">
<parameter name="path">a.txt</parameter>
</invoke>
</minimax:tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

from bushel.chat.tool_parsers.reading.key_values import Pairs
from bushel.chat.tool_parsers.reading.parser import NoCall
from bushel.chat.tool_parsers.tool_format import CallSection, Offered

_ATTRIBUTE = re.compile(r"""\s*([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_CDATA, _CDATA_END = "<![CDATA[", "]]>"


@dataclass(frozen=True)
class InvokeTags:
    """What a format's elements begin and end with."""

    around: tuple[str, ...]  # all calls; a format may have none
    around_end: tuple[str, ...]
    call: str
    call_end: str
    argument: str
    argument_end: str
    quoted: bool = False  # strings may be CDATA


class InvokeSection(Pairs):
    def __init__(self, tags: InvokeTags, start: str, offered: Offered, first: int):
        self.tags = tags
        super().__init__(start, offered, first)

    def read(self) -> Generator[None]:
        tags = self.tags
        if self.start in tags.around:
            yield from self.meet(tags.call)
        while True:
            yield from self._call()
            marker = yield from self.maybe(tags.call, *tags.around_end)
            if marker != tags.call:
                return

    def _call(self) -> Generator[None]:
        tags = self.tags
        self.name((yield from self.attributes())["name"])
        self.begin()
        while (yield from self.meet(tags.argument, tags.call_end)) == tags.argument:
            attributes = yield from self.attributes()
            declared = attributes.get("string")
            text = None if declared is None else declared == "true"
            if tags.quoted and (yield from self.maybe(_CDATA)):
                yield from self.argument(attributes["name"], _CDATA_END, text=text)
                yield from self.meet(tags.argument_end)
            else:
                yield from self.argument(attributes["name"], tags.argument_end, text=text)
        self.close()

    def attributes(self) -> Generator[None, None, dict[str, str]]:
        """Of the element whose beginning was read, to its end; a name is among them."""
        inside, _ = yield from self.until(">")
        attributes = {key: a or b or c for key, a, b, c in _ATTRIBUTE.findall(inside)}
        if not attributes.get("name"):
            raise NoCall
        return attributes


def invoke_section(tags: InvokeTags) -> Callable[[str, Offered, int], CallSection]:
    return partial(InvokeSection, tags)
