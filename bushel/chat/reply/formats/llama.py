"""Llama 3 and 4: an object, or a list of Python calls, that is the whole reply.

    {"name": "read", "parameters": {"path": "a.txt"}}
    [read(path="a.txt"), write(path="b.txt", text="…")]

Either may follow `<|python_tag|>`. LFM 2 puts its list between markers.
"""

from __future__ import annotations

from typing import ClassVar

from bushel.chat.reply.format import Format, Offered, Section
from bushel.chat.reply.formats.calls import BARE, Calls


class Llama(Format):
    name = "llama"
    starts: ClassVar[tuple[str, ...]] = (*BARE, "<|python_tag|>")
    leading = True
    anywhere: ClassVar[tuple[str, ...]] = ("<|python_tag|>",)
    signs: ClassVar[tuple[str, ...]] = ('{"name": function name, "parameters"', "<|python_tag|>")

    def section(self, start: str, offered: Offered, first: int) -> Section:
        return Calls(start, offered, first)


class Pythonic(Llama):
    name = "pythonic"
    starts = (*BARE, "<|python_tag|>", "<|tool_call_start|>")
    anywhere = ("<|python_tag|>", "<|tool_call_start|>")
    signs = ("[func_name1(", "<|tool_call_start|>", "<|tool_list_start|>")
    markup = ("<|tool_call_end|>",)
