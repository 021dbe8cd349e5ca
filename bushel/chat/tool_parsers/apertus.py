"""Apertus, whose calls' names are the objects' keys.

<|tools_prefix|>[{"read": {"path": "a.txt"}}, …]<|tools_suffix|>
"""

from __future__ import annotations

from collections.abc import Sequence

from bushel.chat.structured_output.lark import Lark
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar
from bushel.chat.tool_parsers.grammar.object_calls import around_arguments
from bushel.chat.tool_parsers.reading.json_objects import objects_section
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

_START, _END = "<|tools_prefix|>", "<|tools_suffix|>"


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    bodies = around_arguments(lark, tools, '{"NAME": ', "}")
    return CallForm(bodies, begin=f"{_START}[", between=", ", end=f"]{_END}")


APERTUS = ToolFormat(
    name="apertus",
    detect=Detection(signs=(_START,)),
    starts=(_START,),
    section=objects_section((_END,), by_name=True),
    grammar=_grammar,
    history=BY_TEMPLATE,
    markup=(_END,),
)
