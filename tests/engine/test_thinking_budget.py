"""A budget for thoughts: when it begins to count, when it is spent, and what comes then."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bushel.core import ThinkingBudget
from bushel.engine.constraints.thinking_budget import ThinkingProgress
from tests.engine.numpy_sampling import decoding

WORDS = ["<think>", "</think>", "a", " b", "\n", "</", "think>", "\ufffd", ""]
MARK = len(WORDS)  # a special token: text by its marker alone
CLOSE = (4, 1)
BUDGET = ThinkingBudget(3, False, "<think>", "</think>", CLOSE, ((MARK, "</think>"),))


def decode(ids: object) -> str:
    return "".join(WORDS[token] for token in ids if token != MARK)  # type: ignore[attr-defined]


def run(budget: ThinkingBudget, tokens: list[int]) -> tuple[list[int], ThinkingProgress]:
    """Tokens that the row says: its own, or what is forced."""
    thoughts = ThinkingProgress(budget, decode, decoding())
    said = []
    for token in tokens:
        forced = thoughts.forced
        said.append(forced[0] if forced else token)
        if forced:
            thoughts.close()
        else:
            thoughts.add(token)
    return said, thoughts


def test_thoughts_are_counted_from_their_opening() -> None:
    said, thoughts = run(BUDGET, [4, 0, 2, 3, 2, 3, 2, 3])
    assert said == [4, 0, 2, 3, 2, *CLOSE, 3]
    assert thoughts.over


def test_a_prompt_that_opened_them_begins_the_count() -> None:
    assert run(replace(BUDGET, opened=True), [2] * 6)[0] == [2, 2, 2, *CLOSE, 2]
    assert run(replace(BUDGET, opened=True, tokens=0), [2] * 4)[0] == [*CLOSE, 2, 2]


def test_thoughts_that_end_by_themselves_are_left_alone() -> None:
    """Also when their end is spelled over tokens, or is a special token."""
    for own in ([0, 2, 1], [0, 5, 6], [0, 2, MARK]):
        assert run(BUDGET, [*own, 2, 2, 2, 2])[0] == [*own, 2, 2, 2, 2]


def test_a_reply_without_thoughts_has_no_budget() -> None:
    said, thoughts = run(BUDGET, [2, 0, 2, 2, 2, 2])
    assert said == [2, 0, 2, 2, 2, 2]
    assert thoughts.over


def test_a_character_that_is_begun_may_end_first() -> None:
    """But not for ever."""
    assert run(replace(BUDGET, opened=True), [2, 2, 7, 2, 2, 2])[0] == [2, 2, 7, 2, *CLOSE]
    assert run(replace(BUDGET, opened=True), [2, 2, *[7] * 8])[0][7:9] == [*CLOSE]


@given(st.lists(st.integers(0, MARK), max_size=30), st.integers(0, 6))
def test_no_more_than_the_budget_is_thought(tokens: list[int], most: int) -> None:
    """And nothing is forced before it is spent."""
    said, thoughts = run(replace(BUDGET, tokens=most, opened=True), tokens)
    assert said[:most] == tokens[:most]
    if len(tokens) >= most + 4 + len(CLOSE):
        assert thoughts.over
