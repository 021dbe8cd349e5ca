"""A list of Python calls: Llama 3.2 and 4 as the whole reply, LFM 2 between markers.

    [read(path="a.txt"), write(path="b.txt", text="…")]
    <|tool_call_start|>[read(path="a.txt")]<|tool_call_end|>

The first may follow `<|python_tag|>`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bushel.chat.structured_output.json_schema import rooted
from bushel.chat.structured_output.lark import Lark, quoted
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar, ordered
from bushel.chat.tool_parsers.grammar.element_calls import parameters
from bushel.chat.tool_parsers.reading.mixed_calls import BARE, MixedCalls
from bushel.chat.tool_parsers.tool_format import Detection, InlineCalls, ToolFormat, WrittenCall

_START, _END = "<|tool_call_start|>", "<|tool_call_end|>"
_TAG = "<|python_tag|>"


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    bodies = []
    for tool in tools:
        arguments = []
        for name, schema, required in parameters(tool):
            value = lark.json(rooted(schema, tool.schema), exact=tool.exact)
            arguments.append((f"{quoted(f'{name}=')} {value}", required))
        bodies.append(f'{quoted(f"{tool.name}(")} {ordered(lark, arguments, ", ")} ")"')
    if knows(_START):
        return CallForm(bodies, begin=f"{_START}[", between=", ", end=f"]{_END}")
    return CallForm(bodies, begin="[", between=", ", end="]", leading=True)


def _write(calls: Sequence[WrittenCall]) -> str:
    written = []
    for call in calls:
        arguments = call["function"]["arguments"]
        pairs = ", ".join(f"{name}={_literal(value)}" for name, value in arguments.items())
        written.append(f"{call['function']['name']}({pairs})")
    return f"{_START}[{', '.join(written)}]{_END}"


def _literal(value: Any) -> str:
    """In Python, with texts between double quotes."""
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{_text(key)}: {_literal(item)}" for key, item in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


PYTHONIC = ToolFormat(
    name="pythonic",
    detect=Detection(signs=("[func_name1(", _START, "<|tool_list_start|>")),
    starts=(*BARE, _TAG, _START),
    section=MixedCalls,
    grammar=_grammar,
    history=InlineCalls(_START, _write),
    markup=(_END,),
    leading=True,
    anywhere=(_TAG, _START),
)
