"""Qwen 3 Coder, Qwen 3.5, Nemotron 3, Step: `<function=read>` with or without a tag around it."""

from __future__ import annotations

from bushel.chat.tool_parsers.grammar.element_calls import Tags, elements
from bushel.chat.tool_parsers.reading.function_elements import FUNCTION
from bushel.chat.tool_parsers.reading.mixed_calls import MixedCalls
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

QWEN_CODER = ToolFormat(
    name="xml",
    detect=Detection(signs=(FUNCTION,)),
    starts=("<tool_call>", "<seed:tool_call>", FUNCTION),
    section=MixedCalls,
    grammar=elements(
        Tags("<parameter=KEY>\n", "\n</parameter>\n", ("\n<parameter=", "\n</function>")),
        "<function=NAME>\n",
        "</function>",
        open="<tool_call>\n",
        close="\n</tool_call>",
        between="\n",
    ),
    history=BY_TEMPLATE,
    markup=("</tool_call>", "</seed:tool_call>"),
)
