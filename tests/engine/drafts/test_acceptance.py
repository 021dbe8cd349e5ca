"""What a reply has shown of its drafts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bushel.engine.drafts.acceptance import Acceptance, along

ROUNDS = st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=60)


@given(ROUNDS, st.floats(0.01, 0.99))
def test_a_chance_is_one_and_grows_with_every_draft_that_holds(
    rounds: list[tuple[int, bool]], prior: float
) -> None:
    record = Acceptance(prior)
    assert record.chance == prior
    for held, failed in rounds:
        before = record.chance
        record.count(held, failed)
        assert 0 < record.chance < 1
        if held and not failed:
            assert record.chance >= before
        if failed and not held:
            assert record.chance < before


@given(ROUNDS, st.floats(0.01, 0.99))
def test_the_same_history_gives_the_same_chance(
    rounds: list[tuple[int, bool]], prior: float
) -> None:
    one, other = Acceptance(prior), Acceptance(prior)
    for said, (held, failed) in enumerate(rounds):
        one.count(held, failed, said)
        other.count(held, failed, said)
    assert one.retried(100) == other.retried(100)


def test_what_changed_is_soon_believed() -> None:
    record = Acceptance(0.75)
    for _ in range(200):
        record.count(4, False)
    assert record.chance > 0.95
    for _ in range(60):
        record.count(0, True)
    assert record.chance < 0.25


def test_a_drafter_that_failed_is_tried_again_more_and_more_seldom() -> None:
    record = Acceptance(0.75)
    for _ in range(60):
        record.count(0, True)
    tries = []
    for said in range(2000):
        if record.retried(said) >= 0.75:
            tries.append(said)
            record.count(0, True, said)
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert 3 <= len(tries) < 12
    assert gaps == sorted(gaps)
    assert gaps[-1] > 8 * tries[0]


def test_a_try_that_holds_has_the_next_one_soon_again() -> None:
    record = Acceptance(0.75)
    for _ in range(60):
        record.count(0, True)
    record.count(0, True, 100)
    record.count(0, True, 1100)
    record.count(2, True, 2200)
    assert record.retried(2210) < 0.75
    assert record.retried(2220) == 0.75


def test_drafts_hold_one_after_the_other() -> None:
    assert along(0.5, 3) == [0.5, 0.25, 0.125]
    assert along(0.5, 0) == []
