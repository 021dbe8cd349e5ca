"""InternLM: `<|action_start|><|plugin|>{"name": "read", "parameters": {…}}<|action_end|>`."""

from __future__ import annotations

from bushel.chat.tool_parsers.grammar.object_calls import separate_objects
from bushel.chat.tool_parsers.reading.json_objects import objects_section
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

_START, _END = "<|action_start|><|plugin|>", "<|action_end|>"

INTERNLM = ToolFormat(
    name="internlm",
    detect=Detection(signs=("<|action_start|>",)),
    starts=(_START, "<|action_start|> <|plugin|>"),
    section=objects_section((_END,)),
    grammar=separate_objects(_START, _END, key="parameters"),
    history=BY_TEMPLATE,
    markup=(_END,),
)
