"""What is tried beside every other format, and where a template shows none (B25)."""

from __future__ import annotations

from bushel.chat.tool_parsers.grammar.object_calls import separate_objects
from bushel.chat.tool_parsers.reading.function_elements import FUNCTION
from bushel.chat.tool_parsers.reading.mixed_calls import BARE, TAGS, MixedCalls
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

GENERIC = ToolFormat(
    name="generic",
    detect=Detection(),
    starts=(*BARE, *TAGS, FUNCTION),
    section=MixedCalls,
    grammar=separate_objects("<tool_call>\n", "\n</tool_call>", "\n"),
    history=BY_TEMPLATE,
    markup=tuple(filter(None, TAGS.values())),
    leading=True,
    anywhere=(*TAGS, FUNCTION),
)
