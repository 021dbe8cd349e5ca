"""Hermes, and Qwen up to 3: `<tool_call>{"name": "read", "arguments": {…}}</tool_call>`."""

from __future__ import annotations

from bushel.chat.reply.format import Format, Offered, Section
from bushel.chat.reply.formats.calls import Calls


class Hermes(Format):
    name = "hermes"
    starts = ("<tool_call>",)
    signs = ("<tool_call>",)
    markup = ("</tool_call>",)

    def section(self, start: str, offered: Offered, first: int) -> Section:
        return Calls(start, offered, first)
