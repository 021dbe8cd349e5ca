"""Markup in any disorder reads the same in any pieces (B23, B29)."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.chat.reply.reader import Reader
from bushel.chat.reply.thinking_formats import THINKING_FORMATS
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.core import ReplyFormat
from tests.chat.reply.sample_replies import TOOLS, read

_COMMON = ["read", "now", " ", "\n", "text", '"name": "read"', '"arguments": ', '{"path": "a"}']
_COMMON += ["{", "}", "[", "]", "(", ")", ",", '"', "'", "\\", ":", ";", "=", "path", "5"]
_CALLS = ['{"name": "now", "arguments": {}}', '{"name": "read", "arguments": {"path": "é"}}']
_CALLS += ["now()", "read(path='a')", "<parameter=path>", "</parameter>", "</function>"]
_MARKERS = sorted({start for format in FORMATS.values() for start in format.starts})
_ENDS = sorted({mark for format in FORMATS.values() for mark in format.markup})
_SHARED = ["<tool_call>", "</tool_call>", "<function=", "<think>", "</think>"]


@st.composite
def soups(draw: st.DrawFn) -> tuple[ReplyFormat, bool, list[str]]:
    tools = draw(st.sampled_from(sorted(set(FORMATS) - {"harmony"})))
    thinking = draw(st.sampled_from(["", "think", "think", *sorted(THINKING_FORMATS)]))
    form = THINKING_FORMATS.get(thinking)
    marks = [*FORMATS[tools].starts, *FORMATS[tools].markup, *(form.markers if form else ())]
    special = tuple(enumerate(draw(st.sets(st.sampled_from(marks)))))
    parts = st.sampled_from([*_COMMON, *_CALLS, *_SHARED, *marks]) | st.sampled_from(
        [*_COMMON, *_CALLS, *_SHARED, *marks, *_MARKERS, *_ENDS]
    )
    reply_format = ReplyFormat(tools, thinking, special)
    return reply_format, draw(st.booleans()), draw(st.lists(parts, max_size=25))


@settings(max_examples=int(os.environ.get("BUSHEL_TEST_MARKUP", "300")))
@given(soups())
def test_any_markup_in_any_pieces(soup: tuple[ReplyFormat, bool, list[str]]) -> None:
    """Well-formed deltas that do not depend on the cuts, and complete calls are JSON. B23, B29."""
    reply_format, opened, parts = soup
    reply = "".join(parts)
    whole = read(Reader(reply_format, TOOLS, opened=opened), [reply])
    assert read(Reader(reply_format, TOOLS, opened=opened), reply) == whole
    assert read(Reader(reply_format, TOOLS, opened=opened), parts) == whole
