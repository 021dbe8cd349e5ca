"""Hermes, and Qwen up to 3: `<tool_call>{"name": "read", "arguments": {…}}</tool_call>`."""

from __future__ import annotations

from bushel.chat.tool_parsers.grammar.object_calls import separate_objects
from bushel.chat.tool_parsers.reading.mixed_calls import MixedCalls
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

HERMES = ToolFormat(
    name="hermes",
    detect=Detection(signs=("<tool_call>",)),
    starts=("<tool_call>",),
    section=MixedCalls,
    grammar=separate_objects("<tool_call>\n", "\n</tool_call>", "\n"),
    history=BY_TEMPLATE,
    markup=("</tool_call>",),
)
