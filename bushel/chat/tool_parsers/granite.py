"""Granite 3 and Granite function calling: objects behind a marker, with no end.

    <|tool_call|>[{"name": "read", "arguments": {"path": "a.txt"}}]
    <function_call> {"name": "read", "arguments": {"path": "a.txt"}}

Granite 4 writes calls as Hermes does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from bushel.chat.structured_output.lark import Lark
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar
from bushel.chat.tool_parsers.grammar.object_calls import object_list, separate_objects
from bushel.chat.tool_parsers.reading.json_objects import objects_section
from bushel.chat.tool_parsers.tool_format import Detection, InlineCalls, ToolFormat, WrittenCall

_CALL, _FUNCTION = "<|tool_call|>", "<function_call>"
_ENDS = ("<|/tool_call|>", "</tool_call>", "</function_call>")


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    if knows(_FUNCTION) and not knows(_CALL):
        return separate_objects(f"{_FUNCTION} ", "", "\n")(lark, tools, knows)
    return object_list(_CALL, "")(lark, tools, knows)


def _write(calls: Sequence[WrittenCall]) -> str:
    functions = [call["function"] for call in calls]
    objects = [
        {"name": function["name"], "arguments": function["arguments"]} for function in functions
    ]
    return _CALL + json.dumps(objects, ensure_ascii=False)


GRANITE = ToolFormat(
    name="granite",
    detect=Detection(signs=(_CALL, _FUNCTION)),
    starts=(_CALL, _FUNCTION, "<tool_call>"),
    section=objects_section(_ENDS),
    grammar=_grammar,
    history=InlineCalls(_CALL, _write),
    markup=_ENDS,
)
