"""Replies in pieces say what they say whole (B23, B24, B25, B26, B27, B29)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chat.reply import more_sample_replies
from tests.chat.reply.sample_replies import EXAMPLES, Example, Said, read
from tests.depth import ALL, some

assert more_sample_replies  # its examples are among the others

STRIDE = 1 if ALL else 3  # places of a reply from one that is tried to the next
each = pytest.mark.parametrize("example", EXAMPLES, ids=str)


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges) if a < b]


@each
def test_a_reply_says_its_text_thoughts_and_calls(example: Example) -> None:
    """Text, thoughts and calls are told apart, in every format. B23, B25, B26, B27, B29."""
    found = read(example.reader(), [example.reply])
    assert found.text == example.text
    assert found.thoughts == example.thoughts
    assert [(call.name, call.arguments) for call in found.calls] == list(example.calls)
    assert all(call.complete for call in found.calls)


@each
def test_one_character_at_a_time(example: Example) -> None:
    """Markers that are split over many pieces are found. B23."""
    assert read(example.reader(), example.reply) == read(example.reader(), [example.reply])


@each
def test_two_pieces_at_every_place(example: Example) -> None:
    """A reply says the same wherever it is cut in two. B23."""
    whole = read(example.reader(), [example.reply])
    for place in range(1 + len(example.reply) % STRIDE, len(example.reply), STRIDE):
        assert read(example.reader(), cut(example.reply, [place])) == whole, place


@each
@settings(max_examples=some(20))
@given(places=st.lists(st.integers(0, 2000), max_size=12))
def test_any_pieces(example: Example, places: list[int]) -> None:
    """A reply says the same in any number of pieces. B23."""
    whole = read(example.reader(), [example.reply])
    assert read(example.reader(), cut(example.reply, places)) == whole


@each
def test_a_reply_that_is_cut_off_has_no_more_than_was_said(example: Example) -> None:
    """At every place, in one piece or in many; nothing is added to what was generated. B24."""
    whole = read(example.reader(), [example.reply])
    for place in range(len(example.reply) % STRIDE, len(example.reply), STRIDE):
        said = example.reply[:place]
        found = read(example.reader(), [said])
        if place % 7 == 0:
            assert read(example.reader(), said) == found, said
        if found.thoughts == whole.thoughts:  # else it may end with what would become a draft
            check_beginning(found, whole)


def check_beginning(found: Said, whole: Said) -> None:
    for call, same in zip(found.calls, whole.calls, strict=False):
        assert call.name == same.name
        if call.complete:
            assert call.arguments == same.arguments
        else:
            assert same.json.startswith(call.json)
    assert len(found.calls) <= len(whole.calls)
    assert all(call.complete for call in found.calls[:-1])
