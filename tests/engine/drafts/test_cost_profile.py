"""What is measured of passes, and what follows from it for others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bushel.engine.drafts.cost_profile import CostProfile


def test_a_pass_costs_no_more_than_a_wider_one_or_one_of_more_rows() -> None:
    held_up = {(1, 1): 1.0, (1, 2): 9.0, (1, 4): 2.0, (4, 1): 1.5, (4, 2): 1.8, (4, 4): 3.0}
    profile = CostProfile.fitted(held_up, 4)
    assert profile.cost(1, 2) == pytest.approx(1.8)
    assert profile.cost(4, 4) == pytest.approx(3.0)


def test_tokens_of_context_have_a_price_too() -> None:
    short = CostProfile(((1.0, 1.5, 2.0), (1.5, 2.0, 2.5)))
    profile = short.with_long_context({1: 0.2, 2: 0.6, 3: 2.0}, 200)
    assert profile.seconds_per_context_token == pytest.approx((0.001, 0.003, 0.01))
    assert profile.cost(2, 3) == 2.5  # of rows that have hardly any context
    later = replace(profile, context_tokens=1000)
    assert [later.cost(1, width) for width in (1, 2, 3)] == pytest.approx([2.0, 4.5, 12.0])


def test_context_never_makes_a_pass_cheaper_or_dearer_than_a_wider_one() -> None:
    held_up = CostProfile(((1.0, 1.5, 2.0),)).with_long_context({1: -0.1, 2: 8.0, 3: 2.0}, 200)
    assert held_up.seconds_per_context_token == pytest.approx((0.0, 0.01, 0.01))


def test_drafts_have_a_price_of_their_own() -> None:
    profile = CostProfile(((1.0, 1.5, 2.0),), drafting=0.25)
    assert [profile.cost(1, width) for width in (1, 2, 3)] == [1.0, 1.75, 2.5]
