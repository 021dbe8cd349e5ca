"""MiniCPM 5: `<function name="read"><param name="path">a.txt</param></function>`."""

from __future__ import annotations

from bushel.chat.tool_parsers.grammar.element_calls import Tags, elements
from bushel.chat.tool_parsers.reading.invoke_elements import InvokeTags, invoke_section
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

MINICPM = ToolFormat(
    name="minicpm",
    detect=Detection(signs=('<function name="',)),
    starts=("<function ",),
    section=invoke_section(
        InvokeTags(
            around=(),
            around_end=(),
            call="<function ",
            call_end="</function>",
            argument="<param",
            argument_end="</param>",
            quoted=True,
        )
    ),
    grammar=elements(
        Tags('<param name="KEY">', "</param>"),
        'name="NAME">',
        "",
        open="<function ",
        close="</function>",
    ),
    history=BY_TEMPLATE,
)
