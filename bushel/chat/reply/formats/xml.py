"""Qwen 3 Coder, Qwen 3.5, Nemotron 3, Step: `<function=read>` with or without a tag around it."""

from __future__ import annotations

from bushel.chat.reply.format import Format, Offered, Section
from bushel.chat.reply.formats.calls import Calls
from bushel.chat.reply.formats.functions import FUNCTION


class Xml(Format):
    name = "xml"
    starts = ("<tool_call>", "<seed:tool_call>", FUNCTION)
    signs = (FUNCTION,)
    markup = ("</tool_call>", "</seed:tool_call>")

    def section(self, start: str, offered: Offered, first: int) -> Section:
        return Calls(start, offered, first)
