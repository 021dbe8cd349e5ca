"""The last hidden states of prompts: found by whoever begins with the same tokens."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel.cache.prefix.memory_budget import MemoryBudget
from bushel.cache.prefix.prompt_ends import _MOST, PromptEnds, Span

WIDTH = 4


def key(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int64)


def states(start: int, end: int) -> Span:
    """Each says which token it is of."""
    return start, mx.broadcast_to(mx.arange(start, end)[None, :, None], (1, end - start, WIDTH))


def told(spans: list[Span]) -> list[Any]:
    """The tokens that they are of, as they say themselves; where they begin is held to it."""
    found: list[Any] = []
    for start, hidden in spans:
        row: Any = hidden[0, :, 0].tolist()
        assert row == [*range(start, start + len(row))]
        found += row
    return found


@pytest.fixture
def ends() -> PromptEnds:
    return PromptEnds(MemoryBudget(1 << 20, 1000))


LONG = tuple(range(100, 120))


def test_a_prompt_that_goes_on_is_given_the_end_of_the_one_before(ends: PromptEnds) -> None:
    ends.put("", key(*LONG), [states(12, 20)])
    assert told(ends.get("", key(*LONG, 1, 2, 3), 22)) == [*range(12, 20)]
    assert told(ends.get("", key(*LONG), 19)) == [*range(12, 19)]


def test_a_prompt_that_parts_is_given_what_both_have(ends: PromptEnds) -> None:
    """And nothing of what was run before another token."""
    ends.put("", key(*LONG), [states(3, 5), states(12, 20)])
    assert told(ends.get("", key(*LONG[:15], 7, 7, 7, 7, 7), 19)) == [3, 4, 12, 13, 14]
    assert told(ends.get("", key(*LONG[:4], 7, 7), 5)) == [3]
    assert ends.get("", key(*LONG[:3], 7), 3) == []
    assert ends.get("", key(7, *LONG), 20) == []


def test_of_several_the_nearest_is_given(ends: PromptEnds) -> None:
    ends.put("", key(*LONG[:10]), [states(2, 10)])
    ends.put("", key(*LONG), [states(15, 20)])
    assert told(ends.get("", key(*LONG, 1), 20)) == [*range(15, 20)]
    assert told(ends.get("", key(*LONG[:12], 1), 12)) == [*range(2, 10)]


def test_what_belongs_to_one_key_is_not_given_to_another(ends: PromptEnds) -> None:
    """However much their prompts have in common. B68."""
    ends.put("mine", key(*LONG), [states(12, 20)])
    assert ends.get("yours", key(*LONG), 19) == []


def test_the_same_prompt_is_kept_once_and_the_oldest_go() -> None:
    budget = MemoryBudget(1 << 20, 1000)
    ends = PromptEnds(budget)
    for at in range(_MOST + 5):
        ends.put("", key(at, *LONG), [states(1, 21)])
        ends.put("", key(at, *LONG), [states(11, 21)])
        budget.check(ends.nbytes)
    assert len(ends) == _MOST
    assert ends.get("", key(0, *LONG), 20) == []
    assert told(ends.get("", key(_MOST, *LONG), 20)) == [*range(11, 20)]


def test_they_make_way_like_all_that_is_kept(ends: PromptEnds) -> None:
    """The one that was asked for is not the oldest."""
    size = states(12, 20)[1].nbytes
    budget = MemoryBudget(2 * size, 1000)
    ends = PromptEnds(budget)
    for at in (1, 2):
        ends.put("", key(at, *LONG), [states(12, 20)])
    assert ends.get("", key(1, *LONG), 20)
    ends.put("", key(3, *LONG), [states(12, 20)])
    assert [bool(ends.get("", key(at, *LONG), 20)) for at in (1, 2, 3)] == [True, False, True]
    budget.shrink(0, 0)
    assert (len(ends), ends.nbytes, budget.bytes) == (0, 0, 0)
    ends.put("", key(*LONG), [states(12, 20)])
    assert len(ends) == 0


def test_what_is_not_kept_any_more_is_freed(ends: PromptEnds) -> None:
    """At once, and not when others come."""

    def held(at: int) -> int:
        hidden = mx.zeros((1, 256, 256))
        mx.eval(hidden)
        ends.put("", key(at, *LONG), [(0, hidden)])
        del hidden
        return mx.get_active_memory()

    before = mx.get_active_memory()
    for at in range(20):
        assert held(at) - before <= ends.nbytes + 1000
    ends.clear()
    assert mx.get_active_memory() - before <= 1000
