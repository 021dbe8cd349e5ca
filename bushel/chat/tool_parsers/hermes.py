"""Hermes, and Qwen up to 3: `<tool_call>{"name": "read", "arguments": {…}}</tool_call>`."""

from __future__ import annotations

from bushel.chat.tool_parsers.calls import Calls
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat


class Hermes(ToolFormat):
    name = "hermes"
    starts = ("<tool_call>",)
    signs = ("<tool_call>",)
    markup = ("</tool_call>",)

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return Calls(start, offered, first)
