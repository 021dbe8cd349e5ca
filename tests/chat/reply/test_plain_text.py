"""Text that is not markup arrives as it was generated (B27, B28)."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.chat.reply.reader import Reader
from bushel.chat.reply.thinking_formats import THINKING_FORMATS
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.core import ReplyFormat, TextDelta
from tests.chat.reply.sample_replies import TOOLS, read

names = st.sampled_from(sorted(set(FORMATS) - {"harmony"}))
forms = st.sampled_from(sorted({"", *THINKING_FORMATS} - {"harmony"}))
_SAFE = st.characters(exclude_categories=["Cs"], exclude_characters="<>[]{}|")
_BROKEN = ["<", "<tool", "<tool_call", "</tool_call>", "<|", "|>", "{", "}", "[", "</", "<function"]


@settings(deadline=None)
@given(names, forms, st.text(_SAFE), st.lists(st.integers(0, 100), max_size=5))
def test_text_without_markers_comes_out_as_it_went_in(
    tools: str, thinking: str, text: str, places: list[int]
) -> None:
    """Plain text is content, to the letter, whatever formats are looked for. B28."""
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    found = read(Reader(ReplyFormat(tools, thinking), TOOLS), pieces)
    assert (found.text, found.thoughts, found.calls) == (text, "", [])


@settings(deadline=None)
@given(names, st.lists(st.sampled_from([*_BROKEN, "a", " ", "\n", "read", '"name"'])))
def test_text_that_looks_like_markup_is_text(tools: str, pieces: list[str]) -> None:
    """Fragments of markers are held back, and released. B27."""
    found = read(Reader(ReplyFormat(tools, "think"), TOOLS), pieces)
    assert (found.text, found.calls) == ("".join(pieces), [])


@settings(deadline=None)
@given(
    names, st.lists(st.sampled_from([*_BROKEN, "<tool_call>", '{"name": "read", "arguments": {']))
)
def test_without_offered_tools_nothing_is_looked_for(tools: str, pieces: list[str]) -> None:
    """An agent that puts its tools into the prompt gets its own tags untouched. B27."""
    reader = Reader(ReplyFormat(tools), {})
    assert [delta for piece in pieces for delta in reader.feed(piece)] == [
        TextDelta(piece) for piece in pieces
    ]
    assert reader.finish() == []


def test_the_same_text_is_a_call_when_its_tool_is_offered() -> None:
    """The control of the tests above. B27."""
    reply = '<tool_call>{"name": "read", "arguments": {}}</tool_call>'
    assert read(Reader(ReplyFormat("hermes"), {}), [reply]).text == reply
    assert read(Reader(ReplyFormat("hermes"), TOOLS), [reply]).calls


def test_text_arrives_at_once_and_a_possible_marker_when_it_is_none() -> None:
    """Only what may begin a marker waits, until it cannot. B28."""
    reader = Reader(ReplyFormat("hermes", "think"), TOOLS)
    assert reader.feed("Hello") == [TextDelta("Hello")]
    assert reader.feed(" <tool") == []
    assert reader.feed("box>") == [TextDelta(" <toolbox>")]
    assert reader.feed("\n") == []  # a call may follow
    assert reader.finish() == [TextDelta("\n")]


def test_special_tokens_of_calls_are_no_text_without_tools() -> None:
    """A client that offered no tools sees no marker of calls. B21."""
    reply_format = ReplyFormat("llama", "", ((1, "<|python_tag|>"),))
    assert read(Reader(reply_format, {}), ["<|python", "_tag|>1 + 1"]).text == "1 + 1"
