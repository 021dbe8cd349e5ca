"""Llama 3 and 4: an object that is the whole reply.

    {"name": "read", "parameters": {"path": "a.txt"}}

It may follow `<|python_tag|>`.
"""

from __future__ import annotations

from collections.abc import Sequence

from bushel.chat.structured_output.lark import Lark
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar
from bushel.chat.tool_parsers.grammar.object_calls import named_objects
from bushel.chat.tool_parsers.reading.mixed_calls import BARE, MixedCalls
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    return CallForm(named_objects(lark, tools, "parameters"), between="; ", leading=True)


LLAMA = ToolFormat(
    name="llama",
    detect=Detection(signs=('{"name": function name, "parameters"', "<|python_tag|>")),
    starts=(*BARE, "<|python_tag|>"),
    section=MixedCalls,
    grammar=_grammar,
    history=BY_TEMPLATE,
    leading=True,
    anywhere=("<|python_tag|>",),
)
