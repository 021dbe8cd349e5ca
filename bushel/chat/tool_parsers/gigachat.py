"""GigaChat: `<|function_call|>{"name": "read", "arguments": {…}}`, which ends the reply."""

from __future__ import annotations

from bushel.chat.tool_parsers.grammar.object_calls import separate_objects
from bushel.chat.tool_parsers.reading.json_objects import objects_section
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

_START, _END = "<|function_call|>", "<|message_sep|>"

GIGACHAT = ToolFormat(
    name="gigachat",
    detect=Detection(signs=(_START, "'role': 'function call'")),
    starts=(_START, "<|message_sep|>\n\nfunction call<|role_sep|>"),
    section=objects_section((_END,)),
    grammar=separate_objects(_START, ""),
    history=BY_TEMPLATE,
    markup=(_END,),
)
