"""Phi 4 mini: `functools[{"name": "read", "arguments": {…}}, …]`."""

from __future__ import annotations

from bushel.chat.tool_parsers.grammar.object_calls import object_list
from bushel.chat.tool_parsers.reading.json_objects import objects_section
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

PHI4 = ToolFormat(
    name="functools",
    detect=Detection(signs=("functools[",)),
    starts=("functools",),
    section=objects_section(()),
    grammar=object_list("functools", ""),
    history=BY_TEMPLATE,
)
