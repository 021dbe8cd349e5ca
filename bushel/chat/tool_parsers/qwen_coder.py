"""Qwen 3 Coder, Qwen 3.5, Nemotron 3, Step: `<function=read>` with or without a tag around it."""

from __future__ import annotations

from bushel.chat.tool_parsers.calls import Calls
from bushel.chat.tool_parsers.functions import FUNCTION
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat


class Xml(ToolFormat):
    name = "xml"
    starts = ("<tool_call>", "<seed:tool_call>", FUNCTION)
    signs = (FUNCTION,)
    markup = ("</tool_call>", "</seed:tool_call>")

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return Calls(start, offered, first)
