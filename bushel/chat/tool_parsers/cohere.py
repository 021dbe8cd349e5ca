"""Command R7B and later write a list of objects between markers; Command R+ a fenced block.

<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "read", "parameters": {…}}]<|END_ACTION|>
"""

from __future__ import annotations

from collections.abc import Sequence

from bushel.chat.structured_output.lark import Lark, quoted
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar
from bushel.chat.tool_parsers.grammar.object_calls import around_arguments
from bushel.chat.tool_parsers.reading.json_objects import objects_section
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

_START, _END, _FENCE = "<|START_ACTION|>", "<|END_ACTION|>", "```"


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    rest = '"tool_name": "NAME", "parameters": '
    if not knows(_START):
        bodies = around_arguments(lark, tools, f"{{{rest}", "}")
        return CallForm(bodies, begin=f"Action:\n{_FENCE}json\n[", between=",\n", end=f"]{_FENCE}")
    counted = quoted('{"tool_call_id": "') + " /[0-9]{1,3}/"
    bodies = [f"{counted} {body}" for body in around_arguments(lark, tools, f'", {rest}', "}")]
    return CallForm(bodies, begin=f"{_START}[", between=",\n", end=f"]{_END}")


COHERE = ToolFormat(
    name="cohere",
    detect=Detection(signs=(_START, "\\nAction:\\n```json")),
    starts=(_START, "Action:\n```json", "Action: ```json"),
    section=objects_section((_END, _FENCE)),
    grammar=_grammar,
    history=BY_TEMPLATE,
    markup=(_END, _FENCE),
)
