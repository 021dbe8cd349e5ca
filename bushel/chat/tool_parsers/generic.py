"""What is tried beside every other format, and where a template shows none (B25)."""

from __future__ import annotations

from bushel.chat.tool_parsers.calls import BARE, TAGS, Calls
from bushel.chat.tool_parsers.functions import FUNCTION
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat


class Generic(ToolFormat):
    name = "generic"
    starts = (*BARE, *TAGS, FUNCTION)
    leading = True
    anywhere = (*TAGS, FUNCTION)
    markup = tuple(filter(None, TAGS.values()))

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return Calls(start, offered, first)
