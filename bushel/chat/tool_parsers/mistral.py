"""Mistral: a list of objects, or a name and its arguments for each marker.

[TOOL_CALLS][{"name": "read", "arguments": {"path": "a.txt"}, "id": "abc"}]
[TOOL_CALLS]read[CALL_ID]abc[ARGS]{"path": "a.txt"}[TOOL_CALLS]write[ARGS]{…}
"""

from __future__ import annotations

from collections.abc import Generator

from bushel.chat.tool_parsers.objects import Objects
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat

_CALLS, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"


class MistralSection(Objects):
    def read(self) -> Generator[None]:
        if (yield from self.peek()) in "[{":
            yield from self.objects()
            return
        more = _CALLS
        while more:
            yield from self._named_call()
            more = yield from self.maybe(_CALLS)

    def _named_call(self) -> Generator[None]:
        name, marker = yield from self.until(_ID, _ARGUMENTS, "{")
        self.name(name)
        if marker == _ID:
            _, marker = yield from self.until(_ARGUMENTS, "{")
        if marker == "{":
            self.back(marker)
        yield from self.arguments(_CALLS)
        self.end()


class Mistral(ToolFormat):
    name = "mistral"
    starts = (_CALLS,)
    signs = (_CALLS,)
    markup = (_ID, _ARGUMENTS)

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return MistralSection(start, offered, first)
