"""Passages are found again wherever they were said before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bushel.engine.drafts.ngram_index import LONGEST, NGRAMS, NOT_SAID, NgramIndex

TOKENS = st.integers(0, 3)  # so few that passages come again
BEFORE = st.lists(st.integers(NOT_SAID, 3), max_size=40)
SAID = st.lists(TOKENS, max_size=40)


def agreement(text: list[int], at: int) -> int:
    """Tokens before `at` that are the text's last ones."""
    length = 0
    while length < min(at, LONGEST):
        token = text[at - 1 - length]
        if token == NOT_SAID or token != text[len(text) - 1 - length]:
            break
        length += 1
    return length


def longest(text: list[int]) -> int:
    return max((agreement(text, at) for at in range(len(text))), default=0)


@given(BEFORE, SAID)
def test_the_last_tokens_are_found_wherever_they_stand(before: list[int], said: list[int]) -> None:
    index = NgramIndex(before)
    for count in range(len(said) + 1):
        if count:
            index.add(said[count - 1])
        text = before + said[:count]
        most = longest(text)
        assert index.tokens == text
        if most < NGRAMS[-1]:
            assert index.match is None
            assert index.draft(4) == []
            continue
        assert index.match is not None
        assert index.match.length == agreement(text, index.match.at)
        assert index.match.length >= min(most, NGRAMS[0]) or most < NGRAMS[0]
        index.check_integrity()


@given(BEFORE, SAID)
def test_drafts_are_what_came_next(before: list[int], said: list[int]) -> None:
    index = NgramIndex(before)
    for token in said:
        index.add(token)
    if index.match is None:
        return
    drafted = index.draft(8)
    text = before + said + drafted
    at = index.match.at
    assert drafted == text[at : at + len(drafted)]
    assert len(drafted) == 8 or text[at + len(drafted)] == NOT_SAID


def test_a_loop_is_drafted_as_far_as_one_likes() -> None:
    index = NgramIndex([7, 8, 9, 7, 8])
    assert index.draft(7) == [9, 7, 8, 9, 7, 8, 9]


def test_of_two_passages_that_begin_alike_the_one_that_agrees_further_is_found() -> None:
    index = NgramIndex([1, 5, 6, 7, 20, 2, 5, 6, 7, 21, 3, 6, 7, 22, 2, 5, 6])
    index.add(7)
    assert index.draft(1) == [21]


def test_nothing_is_copied_from_what_stands_for_an_image() -> None:
    image = [NOT_SAID] * 3
    index = NgramIndex([4, 5, *image, 6, *image, 4, 5])
    assert index.match is not None
    assert index.draft(4) == []
    assert NgramIndex([6, *image, 6, *image]).match is None


def test_control_a_place_that_is_not_the_same_is_seen() -> None:
    index = NgramIndex([1, 2, 3, 1, 2])
    assert index.match is not None
    assert agreement(index.tokens, index.match.at) == 2
    assert agreement(index.tokens, index.match.at - 1) == 0
