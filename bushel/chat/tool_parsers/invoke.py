"""Calls as elements with attributes, one for each call and one for each argument.

<minimax:tool_call>
<invoke name="read">
<parameter name="path">a.txt</parameter>
</invoke>
</minimax:tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from bushel.chat.tool_parsers.pairs import Pairs
from bushel.chat.tool_parsers.parse import NoCall
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat

_ATTRIBUTE = re.compile(r"""\s*([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_CDATA, _CDATA_END = "<![CDATA[", "]]>"


@dataclass(frozen=True)
class Elements:
    """What elements of a format begin and end with."""

    around: tuple[str, ...]  # all calls; a format may have none
    around_end: tuple[str, ...]
    call: str
    call_end: str
    argument: str
    argument_end: str
    quoted: bool = False  # strings may be CDATA


class InvokeSection(Pairs):
    def __init__(self, elements: Elements, start: str, offered: Offered, first: int):
        self.elements = elements
        super().__init__(start, offered, first)

    def read(self) -> Generator[None]:
        elements = self.elements
        if self.start in elements.around:
            yield from self.meet(elements.call)
        while True:
            yield from self._call()
            marker = yield from self.maybe(elements.call, *elements.around_end)
            if marker != elements.call:
                return

    def _call(self) -> Generator[None]:
        elements = self.elements
        self.name((yield from self.attributes())["name"])
        self.begin()
        while (yield from self.meet(elements.argument, elements.call_end)) == elements.argument:
            attributes = yield from self.attributes()
            declared = attributes.get("string")
            text = None if declared is None else declared == "true"
            if elements.quoted and (yield from self.maybe(_CDATA)):
                yield from self.argument(attributes["name"], _CDATA_END, text=text)
                yield from self.meet(elements.argument_end)
            else:
                yield from self.argument(attributes["name"], elements.argument_end, text=text)
        self.close()

    def attributes(self) -> Generator[None, None, dict[str, str]]:
        """Of the element whose beginning was read, to its end; a name is among them."""
        inside, _ = yield from self.until(">")
        found = {key: a or b or c for key, a, b, c in _ATTRIBUTE.findall(inside)}
        if not found.get("name"):
            raise NoCall
        return found


class InvokeFormat(ToolFormat):
    elements: ClassVar[Elements]

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return InvokeSection(self.elements, start, offered, first)


class MiniCpm(InvokeFormat):
    """MiniCPM 5."""

    name = "minicpm"
    starts = ("<function ",)
    signs = ('<function name="',)
    elements = Elements(
        around=(),
        around_end=(),
        call="<function ",
        call_end="</function>",
        argument="<param",
        argument_end="</param>",
        quoted=True,
    )


class Atem(InvokeFormat):
    """Muse Glimmer."""

    name = "atem"
    starts = ("<atem:function_calls>",)
    signs = ("<atem:function_calls>",)
    elements = Elements(
        around=("<atem:function_calls>",),
        around_end=("</atem:function_calls>",),
        call="<atem:invoke",
        call_end="</atem:invoke>",
        argument="<atem:parameter",
        argument_end="</atem:parameter>",
    )
