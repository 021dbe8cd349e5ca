"""Apriel and Hunyuan A13B, whose calls are a list between tags; MiniMax M1, without the list.

<tool_calls>[{"name": "read", "arguments": {"path": "a.txt"}}, …]</tool_calls>
"""

from __future__ import annotations

from collections.abc import Sequence

from bushel.chat.structured_output.lark import Lark
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar
from bushel.chat.tool_parsers.grammar.object_calls import named_objects, object_list
from bushel.chat.tool_parsers.reading.json_objects import objects_section
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

_START, _END = "<tool_calls>", "</tool_calls>"


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    if knows(f"{_START}[") or not knows(f"{_START}\n"):
        return object_list(_START, _END)(lark, tools, knows)
    bodies = named_objects(lark, tools)
    return CallForm(bodies, begin=f"{_START}\n", between="\n", end=f"\n{_END}")


APRIEL = ToolFormat(
    name="tool_calls",
    detect=Detection(signs=(_START,)),
    starts=(_START,),
    section=objects_section((_END,)),
    grammar=_grammar,
    history=BY_TEMPLATE,
    markup=(_END,),
)
