"""Nemotron Nano 2: `<TOOLCALL>[{"name": "read", "arguments": {…}}, …]</TOOLCALL>`."""

from __future__ import annotations

from bushel.chat.tool_parsers.grammar.object_calls import object_list
from bushel.chat.tool_parsers.reading.json_objects import objects_section
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

NEMOTRON = ToolFormat(
    name="nemotron",
    detect=Detection(signs=("<TOOLCALL>",)),
    starts=("<TOOLCALL>",),
    section=objects_section(("</TOOLCALL>",)),
    grammar=object_list("<TOOLCALL>", "</TOOLCALL>"),
    history=BY_TEMPLATE,
    markup=("</TOOLCALL>",),
)
