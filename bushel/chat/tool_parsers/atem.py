"""Muse Glimmer, whose elements are in a namespace of their own.

<atem:function_calls>
<atem:invoke name="read">
<atem:parameter name="path">a.txt</atem:parameter>
</atem:invoke>
</atem:function_calls>
"""

from __future__ import annotations

from bushel.chat.tool_parsers.grammar.element_calls import Tags, elements
from bushel.chat.tool_parsers.reading.invoke_elements import InvokeTags, invoke_section
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

_CALLS, _CALLS_END = "<atem:function_calls>", "</atem:function_calls>"

ATEM = ToolFormat(
    name="atem",
    detect=Detection(signs=(_CALLS,)),
    starts=(_CALLS,),
    section=invoke_section(
        InvokeTags(
            around=(_CALLS,),
            around_end=(_CALLS_END,),
            call="<atem:invoke",
            call_end="</atem:invoke>",
            argument="<atem:parameter",
            argument_end="</atem:parameter>",
        )
    ),
    grammar=elements(
        Tags('<atem:parameter name="KEY">', "</atem:parameter>\n"),
        '<atem:invoke name="NAME">\n',
        "</atem:invoke>\n",
        begin=f"{_CALLS}\n",
        end=_CALLS_END,
    ),
    history=BY_TEMPLATE,
)
