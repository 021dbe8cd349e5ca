"""As many drafts as pay, and none where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.engine.drafts.acceptance import along
from bushel.engine.drafts.batch_drafts import BatchDrafts
from bushel.engine.drafts.cost_profile import CostProfile
from bushel.engine.drafts.draft_length import draft_lengths, may_pay
from tests.parity.drafting import Oracle

WIDTHS = (1, 2, 4, 8)
# Ratios of `bushel:tiny` on a CPU of two cores.
TINY = CostProfile.fitted(
    {
        **dict(zip(((1, width) for width in WIDTHS), (1, 1.12, 1.33, 1.84), strict=True)),
        **dict(zip(((4, width) for width in WIDTHS), (1.4, 1.46, 2.1, 3.5), strict=True)),
        **dict(zip(((8, width) for width in WIDTHS), (1.8, 2.52, 3.96, 6.84), strict=True)),
    },
    8,
)
# Every token costs as much as the one before it.
LINEAR = CostProfile.fitted({(1, width): float(width) for width in WIDTHS}, 8)


@st.composite
def profiles(draw: st.DrawFn) -> CostProfile:
    costs = st.floats(0.001, 1.0)
    counts = draw(st.sampled_from([(1,), (1, 4), (1, 4, 8)]))
    return CostProfile.fitted(
        {(rows, width): draw(costs) for rows in counts for width in WIDTHS}, 8
    )


class Guesses(Oracle):
    """A drafter of these chances."""

    def __init__(self, chances: Sequence[Sequence[float]]) -> None:
        super().__init__({}, 1)
        self.said = chances

    def join(self, rows: object) -> None:
        """Whoever they are."""

    def chances(self, ahead: int = 0, most: int = 0) -> list[Sequence[float]]:
        return list(self.said)


CHANCES = st.lists(st.builds(along, st.floats(0, 1), st.integers(0, 8)), min_size=1, max_size=8)


def rate(chances: Sequence[Sequence[float]], chosen: Sequence[int], profile: CostProfile) -> float:
    """Tokens per second."""
    rows = zip(chances, chosen, strict=True)
    said = sum(1 + sum(row[:depth]) for row, depth in rows)
    return said / profile.cost(len(chances), 1 + max(chosen))


@given(CHANCES, profiles())
def test_no_depth_is_worth_less_than_a_plain_step(
    chances: list[list[float]], profile: CostProfile
) -> None:
    chosen = draft_lengths(chances, profile)
    plain = rate(chances, [0] * len(chances), profile)
    assert all(depth <= len(row) for row, depth in zip(chances, chosen, strict=True))
    assert max(chosen) <= profile.deepest
    assert rate(chances, chosen, profile) > plain or not any(chosen)


@given(CHANCES, profiles())
def test_no_other_width_is_worth_much_more(
    chances: list[list[float]], profile: CostProfile
) -> None:
    best = rate(chances, draft_lengths(chances, profile), profile)
    hopeful = [[chance for chance in row if chance >= 0.1] for row in chances]
    for width in range(profile.deepest + 1):
        other = rate(hopeful, [min(len(row), width) for row in hopeful], profile)
        assert other <= 1.0301 * best


@given(CHANCES, profiles(), st.integers(1, 64))
def test_a_pass_has_no_more_columns_than_are_planned(
    chances: list[list[float]], profile: CostProfile, most: int
) -> None:
    """All rows are as wide as the deepest draft, and what fills them up is computed as well."""
    chosen = draft_lengths(chances, profile, most)
    assert len(chances) * max(chosen) <= most
    plain = rate(chances, [0] * len(chances), profile)
    assert rate(chances, chosen, profile) > plain or not any(chosen)
    drafts = BatchDrafts((lambda: Guesses(chances),), profile, {}, most)
    worth = drafts._worth([(0, row) for row in chances], 0)
    assert worth == chosen


def test_one_row_among_many_drafts_no_deeper_than_there_is_room_for() -> None:
    free = CostProfile(((1.0,) * 8,) * 32)
    chances = [along(1.0, 7), *[[]] * 31]
    assert draft_lengths(chances, free, 7 * 32) == [7, *[0] * 31]
    assert draft_lengths(chances, free, 64) == [2, *[0] * 31]
    assert not may_pay(32, free, 31)


def test_sure_drafts_are_taken_to_the_deepest_and_poor_ones_not_at_all() -> None:
    assert draft_lengths([along(1.0, 8)], TINY) == [7]
    assert draft_lengths([along(0.05, 8)], TINY) == [0]
    assert 0 < draft_lengths([along(0.6, 8)], TINY)[0] < 7


def test_a_row_without_drafts_shares_the_pass_of_one_that_has_some() -> None:
    assert draft_lengths([along(0.99, 8), []], TINY) == [7, 0]
    chosen = draft_lengths([along(1.0, 8), along(1.0, 8), along(0.5, 8), along(0.9, 1)], TINY)
    assert chosen == [7, 7, 3, 1]  # the third row's fourth draft would hold one time in 16


def test_one_row_does_not_make_seven_others_wait() -> None:
    """Their share of a wider pass costs more than it gains."""
    assert draft_lengths([along(0.5, 8)], TINY) != [0]
    assert draft_lengths([along(0.5, 8), *[[]] * 7], TINY) == [0] * 8


def test_nothing_is_drafted_where_every_token_costs_the_same() -> None:
    assert not any(draft_lengths([along(1.0, 8)], LINEAR))
    assert not may_pay(1, LINEAR)
    assert may_pay(8, TINY)


def test_nothing_is_drafted_in_batches_that_nobody_has_measured() -> None:
    alone = CostProfile.fitted({(1, 1): 1.0, (1, 2): 1.1, (1, 4): 1.2}, 32)
    assert draft_lengths([along(0.9, 8)], alone) == [3]
    assert not may_pay(8, alone)


def test_nothing_is_drafted_where_contexts_are_too_long() -> None:
    """Each token of a pass reads all keys once more."""
    profile = replace(TINY, seconds_per_context_token=tuple(1e-3 * width for width in range(1, 9)))
    contexts = [replace(profile, context_tokens=tokens) for tokens in (0, 300, 9000)]
    wanted = [draft_lengths([along(0.7, 8)], context)[0] for context in contexts]
    assert wanted[0] > wanted[1] > wanted[2] == 0
    drafts = BatchDrafts((lambda: Guesses([along(0.7, 8)]),), profile)
    drafts.join([object()])  # type: ignore[list-item]
    assert drafts.may_propose(0, ahead=0)
    assert not drafts.may_propose(9000, ahead=0)


def test_a_slow_drafter_is_asked_for_less() -> None:
    slow = CostProfile(TINY.seconds, drafting=0.4)
    assert draft_lengths([along(0.8, 8)], slow)[0] < draft_lengths([along(0.8, 8)], TINY)[0]


@given(profiles())
def test_more_rows_and_wider_passes_never_cost_less(profile: CostProfile) -> None:
    table = profile.seconds
    assert len(table) == 8
    for rows in range(1, 9):
        for width in range(1, 9):
            assert profile.cost(rows, width) > 0
            if rows > 1:
                assert profile.cost(rows, width) >= profile.cost(rows - 1, width)
            if width > 1:
                assert profile.cost(rows, width) >= profile.cost(rows, width - 1)


def test_what_was_measured_is_what_is_told() -> None:
    assert TINY.cost(4, 4) == 2.1
    assert TINY.cost(1, 6) == pytest.approx((1.33 + 1.84) / 2)
    assert TINY.cost(6, 8) == pytest.approx((3.5 + 6.84) / 2)


def test_an_unfinished_measurement_counts_for_what_it_has() -> None:
    begun = CostProfile.fitted({(1, 1): 1.0, (1, 2): 1.2, (4, 1): 1.1}, 4)
    assert begun.deepest == 1
    assert begun.cost(4, 1) == 1.0
    assert begun.cost(4, 2) == pytest.approx(4.8)


def test_a_drafter_that_is_dear_in_long_contexts_drafts_in_short_ones() -> None:
    profile = CostProfile((tuple(1 + 0.1 * more for more in range(8)),))
    drafter = Guesses([along(0.8, 7)])
    each = {drafter.name: 1e-4}

    def chosen(context: dict[str, float], tokens: int) -> bool:
        drafts = BatchDrafts((lambda: drafter,), profile, {drafter.name: (0.05,)}, 64, context)
        drafts._rows = 1
        return drafts.may_propose(tokens, ahead=0)

    assert chosen(each, 100)
    assert not chosen(each, 32_000)
    assert chosen({}, 32_000)  # the control: nobody knows of it


def test_steps_between_which_nothing_was_learned_ask_once_what_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the context has become in between; far from there they ask again."""
    profile = CostProfile(((1.0, 1.3, 1.6),) * 2, seconds_per_context_token=(1e-9, 2e-9, 4e-9))
    drafts = BatchDrafts((lambda: Guesses([along(0.8, 2)] * 2),), profile)
    drafts._rows, asked = 2, []
    worth = drafts._worth

    def counted(chosen: Any, context_tokens: int) -> list[int]:
        asked.append(context_tokens)
        return worth(chosen, context_tokens)

    monkeypatch.setattr(drafts, "_worth", counted)
    for tokens in range(600, 1000, 2):
        assert drafts.may_propose(tokens, ahead=0)
    assert asked == [512]
    drafts.may_propose(1026, ahead=0)
    assert asked == [512, 1024]
