"""Llama 3 and 4: an object, or a list of Python calls, that is the whole reply.

    {"name": "read", "parameters": {"path": "a.txt"}}
    [read(path="a.txt"), write(path="b.txt", text="…")]

Either may follow `<|python_tag|>`. LFM 2 puts its list between markers.
"""

from __future__ import annotations

from typing import ClassVar

from bushel.chat.tool_parsers.calls import BARE, Calls
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat


class Llama(ToolFormat):
    name = "llama"
    starts: ClassVar[tuple[str, ...]] = (*BARE, "<|python_tag|>")
    leading = True
    anywhere: ClassVar[tuple[str, ...]] = ("<|python_tag|>",)
    signs: ClassVar[tuple[str, ...]] = ('{"name": function name, "parameters"', "<|python_tag|>")

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return Calls(start, offered, first)


class Pythonic(Llama):
    name = "pythonic"
    starts = (*BARE, "<|python_tag|>", "<|tool_call_start|>")
    anywhere = ("<|python_tag|>", "<|tool_call_start|>")
    signs = ("[func_name1(", "<|tool_call_start|>", "<|tool_list_start|>")
    markup = ("<|tool_call_end|>",)
