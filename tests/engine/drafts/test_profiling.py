"""What passes cost is measured on the model itself, shortest of several, and bounded in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.switch_layers import SwitchGLU

from bushel.cache.paged.attention import PARTITION
from bushel.engine.decode_batch import DecodeBatch
from bushel.engine.drafts import profiling
from bushel.engine.drafts.cost_profile import CostProfile
from bushel.engine.drafts.draft_length import may_pay
from bushel.engine.drafts.profiling import (
    context_to_measure,
    measure,
    of_draft_model,
    of_draft_model_per_context_token,
    of_head,
    of_head_per_context_token,
)
from bushel.models import Model, load
from bushel.models.mtp import load_head
from tests.depth import often
from tests.families import checkpoint_dir

Cost = Callable[[int, int, int], float]  # of rows, width, and how often there was such a pass


class Passes:
    """A real model on a machine whose only clock is what its passes take."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        cost: Cost,
        family: str = "llama",
        per_context_token: Callable[[int], float] = lambda width: 0.0,
    ):
        """per_context_token: seconds of the width, for each token that a pass attends to."""
        self.model: Model = load(str(checkpoint_dir(family)))
        self.now, self.counts = 0.0, Counter[tuple[int, int]]()
        forward = self.model.forward

        def timed(inputs: mx.array, positions: Any, *args: Any) -> mx.array:
            rows, width = inputs.shape
            self.counts[rows, width] += 1
            self.now += cost(rows, width, self.counts[rows, width])
            self.now += per_context_token(width) * mx.array(positions).sum().item()
            return forward(inputs, positions, *args)

        patch.setattr(self.model, "forward", timed)

    def measure(self, most_rows: int, free: int | None = None) -> CostProfile:
        return measure(self.model, most_rows, lambda: self.now, free)


def seconds(rows: int, width: int) -> float:
    """So little that everything is measured."""
    return 1e-4 * (10 + rows + 2 * rows * (width - 1))


def steady(patch: pytest.MonkeyPatch) -> Passes:
    """Whose context has a price."""
    cost = lambda rows, width, _: seconds(rows, width)  # noqa: E731
    return Passes(patch, cost, per_context_token=lambda width: 1e-7)


@pytest.mark.parametrize("family", often(["llama", "qwen3_5"], "qwen3_5"))
def test_what_passes_take_is_what_is_measured(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch, lambda rows, width, _: seconds(rows, width), family)
    profile = passes.measure(8)
    assert (len(profile.seconds), profile.deepest, profile.drafting) == (8, 7, 0.0)
    for rows in range(1, 9):  # straight lines between what was measured, as the costs are
        for width in range(1, 9):
            assert profile.cost(rows, width) == pytest.approx(seconds(rows, width))


@pytest.mark.parametrize("family", often(["llama", "gemma3_text", "qwen3_5"], "qwen3_5"))
def test_what_a_long_context_costs_is_measured_too(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention of several tokens may read all keys for each of them."""
    passes = Passes(
        monkeypatch,
        lambda rows, width, _: seconds(rows, width),
        family,
        lambda width: 1e-7 * (3 + width),
    )
    profile = passes.measure(4)
    told = [replace(profile, context_tokens=10_000).cost(2, width) for width in range(1, 9)]
    for width, taken in enumerate(told, 1):  # short rows have some context, too
        assert taken == pytest.approx(seconds(2, width) + 1e-3 * (3 + width), rel=0.1)


def test_a_device_that_is_held_up_once_does_not_make_long_contexts_dear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cost(rows: int, width: int, count: int) -> float:
        return seconds(rows, width) + (0.02 if count % 5 == 0 else 0.0)

    profile = Passes(monkeypatch, cost, per_context_token=lambda width: 1e-7).measure(1)
    assert profile.seconds_per_context_token == pytest.approx((1e-7,) * 8, rel=0.1)


def test_a_machine_that_becomes_quicker_does_not_make_long_contexts_dear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What passes of several rows take has come out shorter there than that of one row before."""

    def cost(rows: int, width: int, count: int) -> float:
        return (1.0 if rows > 1 else 1.3) * seconds(1, width)

    profile = Passes(monkeypatch, cost, per_context_token=lambda width: 1e-7).measure(4)
    assert profile.cost(1, 8) < 1.2 * seconds(1, 8)
    assert profile.seconds_per_context_token == pytest.approx((1e-7,) * 8, rel=0.1)


def test_drafts_are_made_also_where_a_long_context_cannot_be_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(batch: DecodeBatch, tokens: int) -> None:
        raise MemoryError(f"no room for {tokens} tokens")

    monkeypatch.setattr(profiling, "_advance_without_running", full)
    passes = Passes(monkeypatch, lambda rows, width, _: seconds(rows, width))
    profile = passes.measure(4)
    assert profile.seconds_per_context_token == ()
    assert profile.cost(4, 8) == pytest.approx(seconds(4, 8))


def test_a_long_context_is_measured_within_the_models_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes = Passes(monkeypatch, lambda rows, width, _: seconds(rows, width))
    reached, forward = [0], passes.model.forward

    def noting(inputs: mx.array, positions: Any, *args: Any) -> mx.array:
        reached.append(int(mx.array(positions).max().item()))
        return forward(inputs, positions, *args)

    monkeypatch.setattr(passes.model, "forward", noting)
    passes.measure(1)
    assert passes.model.context is not None
    assert passes.model.context // 2 < max(reached) < passes.model.context


def test_a_long_context_is_measured_in_three_turns_at_least_after_one_that_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a machine so slow that a short one had a single turn; and its context is shorter."""
    per_token, longest, slow = 1e-6, [0], [0.0]
    passes = Passes(
        monkeypatch, lambda rows, width, _: slow[0] + seconds(rows, width), "llama", lambda _: 0.0
    )
    turns: list[int] = []
    turn = profiling._turn

    def noted(batch: DecodeBatch, *args: Any) -> dict[int, float]:
        position = max(batch.rows.positions)
        longest[0] = max(longest[0], position)
        turns.append(position)
        passes.now += per_token * position + 0.1 * (position > 1000 and turns.count(position) == 0)
        return turn(batch, *args)

    monkeypatch.setattr(profiling, "_turn", noted)
    monkeypatch.setattr(profiling, "_LONG_CONTEXT", 4096)
    monkeypatch.setattr(type(passes.model), "context", 1 << 16)
    passes.measure(1)
    assert longest[0] > 4096
    assert sum(position > 4096 for position in turns) >= 4
    slow[0], longest[0], turns = 0.02, 0, []
    per_token = 5e-5
    began = passes.now
    profile = passes.measure(1)
    assert 1024 < longest[0] < 2048
    assert sum(position > 1024 for position in turns) == 2 + 3
    assert passes.now - began < 2.5
    assert profile.seconds_per_context_token
    slow[0] = 0.1
    assert passes.measure(1).seconds_per_context_token == ()


def test_the_turn_that_makes_room_does_not_make_long_contexts_dear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes = steady(monkeypatch)
    advance = profiling._advance_without_running

    def growing(batch: DecodeBatch, tokens: int) -> None:
        advance(batch, tokens)
        held_up.append(10)

    held_up: list[int] = []
    forward = passes.model.forward

    def slow(*args: Any) -> mx.array:
        if held_up and held_up[-1] > 0:  # passes of the first turn
            held_up[-1] -= 1
            passes.now += 0.05 if held_up[-1] > 3 else 0.0
        return forward(*args)

    monkeypatch.setattr(passes.model, "forward", slow)
    monkeypatch.setattr(profiling, "_advance_without_running", growing)
    profile = passes.measure(1)
    assert held_up
    assert profile.seconds_per_context_token == pytest.approx((1e-7,) * 8, rel=0.2)


def test_a_context_of_few_tokens_is_not_called_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it adds would be lost in what else a machine does."""
    passes = Passes(monkeypatch, lambda rows, width, _: seconds(rows, width))
    for context in (1, 2, 1000, 2046):
        monkeypatch.setattr(type(passes.model), "context", context)
        assert context_to_measure(passes.model) == 0
        assert passes.measure(1).seconds_per_context_token == ()
    monkeypatch.setattr(type(passes.model), "context", 2048)
    assert context_to_measure(passes.model) == 1024


def test_a_long_context_keeps_to_the_memory_that_the_weights_leave() -> None:
    """With what is copied as it grows: a server that has room for short requests starts."""
    model = load("bushel:tiny", dtype="float32")
    measure(model, 1)  # what is made once

    def peak(free: int | None) -> int:
        mx.synchronize()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        profile = measure(model, 1, free=free)
        if free is not None:
            assert bool(profile.seconds_per_context_token) == (context_to_measure(model, free) > 0)
        return mx.get_peak_memory() - before

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiling, "_LONG_SECONDS", 60.0)
        patch.setattr(profiling, "_MOST_LONG_SECONDS", 60.0)
        short, unlimited = peak(0), peak(None)
        assert context_to_measure(model, 0) == 0
        for free in (32 << 20, 64 << 20):
            assert context_to_measure(model, free) > 0
            assert peak(free) - short < free // 4 < unlimited - short


def test_what_drafters_take_more_in_a_long_context_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes = steady(monkeypatch)
    each = of_draft_model_per_context_token(passes.model, seconds(1, 1), clock=lambda: passes.now)
    assert each == pytest.approx(1e-7, rel=0.1)
    model = load("bushel:tiny")
    model.mtp = head = load_head(model)
    call = type(head).__call__

    def timed(self: Any, hidden: Any, following: Any, places: Any, starts: Any, *args: Any) -> Any:
        passes.now += 1e-3 + 1e-7 * starts[0]
        return call(self, hidden, following, places, starts, *args)

    monkeypatch.setattr(type(head), "__call__", timed)
    short = of_head(head, 1, lambda: passes.now)[0]
    assert short == pytest.approx(1e-3)
    each = of_head_per_context_token(model, short, clock=lambda: passes.now)
    assert each == pytest.approx(1e-7, rel=0.1)
    assert of_head_per_context_token(model, short, 0) == 0.0  # where memory has no room


def test_passes_that_are_held_up_now_and_then_count_for_the_shortest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first ones compile; later ones wait for others on the machine."""

    def cost(rows: int, width: int, count: int) -> float:
        return seconds(rows, width) + (0.02 if count <= 2 or count % 5 == 0 else 0.0)

    profile = Passes(monkeypatch, cost).measure(4)
    for rows in (1, 4):
        for width in (1, 2, 4, 8):
            assert profile.cost(rows, width) == pytest.approx(seconds(rows, width))


def test_control_what_always_takes_longer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(rows: int, width: int, _: int) -> float:
        return seconds(rows, width) + 0.02 * (width > 2)

    profile = Passes(monkeypatch, cost).measure(1)
    assert profile.cost(1, 2) == pytest.approx(seconds(1, 2))
    assert profile.cost(1, 4) == pytest.approx(seconds(1, 4) + 0.02)


def test_what_the_host_does_for_rows_is_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a round is read and before the next one starts, a device has nothing to do."""
    passes = Passes(monkeypatch, lambda rows, width, _: seconds(rows, width))
    finish = DecodeBatch.finish

    def slow(batch: DecodeBatch, *args: Any) -> None:
        passes.now += 0.001 * len(batch)
        finish(batch, *args)

    monkeypatch.setattr(DecodeBatch, "finish", slow)
    profile = passes.measure(8)
    for rows in (1, 4, 8):
        assert profile.cost(rows, 1) == pytest.approx(seconds(rows, 1))
        for width in (2, 4, 8):
            assert profile.cost(rows, width) == pytest.approx(seconds(rows, width) + 0.001 * rows)


def test_rows_and_drafts_ask_experts_as_those_of_real_replies_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of tokens that are all alike a device would read the weights of a few experts only."""
    passes = Passes(monkeypatch, lambda rows, width, _: seconds(rows, width), "qwen3_moe")
    asked: dict[tuple[int, int], list[set[int]]] = {}
    run = SwitchGLU.__call__

    def noting(layer: SwitchGLU, x: mx.array, indices: mx.array) -> mx.array:
        rows, width, _ = indices.shape
        asked.setdefault((rows, width), []).append(set(indices.flatten().tolist()))
        return run(layer, x, indices)

    monkeypatch.setattr(SwitchGLU, "__call__", noting)
    passes.measure(8)
    for shape, few in {(1, 1): 2, (1, 8): 6, (8, 1): 6, (8, 8): 7}.items():  # of eight
        experts = [len(each) for each in asked[shape]]
        assert sum(experts) / len(experts) >= few, (shape, experts)


def test_a_slow_model_is_measured_alone_and_large_batches_draft_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A load takes some more passes, and not minutes."""
    passes = Passes(monkeypatch, lambda rows, width, _: 1.0 + 0.01 * width)
    profile = passes.measure(16)
    assert set(passes.counts) == {(1, width) for width in (1, 2, 4, 8, 64)}
    assert passes.counts[1, 8] == 2  # once to compile, and once to be timed
    assert profile.cost(1, 8) == pytest.approx(1.08)
    assert may_pay(1, profile)
    assert not may_pay(16, profile)
    assert len(profile.seconds) == 16


def test_by_the_machines_own_clock_every_pass_costs_something() -> None:
    model = load(str(checkpoint_dir("llama")))
    profile = measure(model, 6)
    assert (len(profile.seconds), profile.deepest) == (6, 7)
    assert all(cost > 0 for row in profile.seconds for cost in row)


def test_on_an_accelerator_every_width_runs_before_a_reply_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a row of one partition, and in one of two."""
    passes = Passes(monkeypatch, lambda rows, width, _: seconds(rows, width))
    passes.measure(1)
    assert {width for _, width in passes.counts} == {1, 2, 4, 8, 64}
    monkeypatch.setattr(profiling, "ON_CPU", False)
    passes.measure(1)
    assert {width for _, width in passes.counts} == {*range(1, 9), 64, 64 + PARTITION}
    assert all(passes.counts[1, width] == 2 for width in (3, 5, 6, 7))


def test_no_pass_is_measured_that_has_more_drafts_than_one_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it would cost goes on from narrower ones."""
    passes = Passes(monkeypatch, lambda rows, width, _: seconds(rows, width))
    profile = passes.measure(32)
    assert {width for rows, width in passes.counts if rows == 32} == {1, 2}
    assert {width for rows, width in passes.counts if rows == 16} == {1, 2, 4}
    assert profile.cost(32, 3) == pytest.approx(seconds(32, 3))


def test_one_row_at_a_time_is_measured_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch, lambda rows, width, _: seconds(rows, width))
    profile = passes.measure(1)
    assert len(profile.seconds) == 1
    assert {rows for rows, _ in passes.counts} == {1}


def test_a_head_costs_what_its_quickest_token_took() -> None:
    model = load("bushel:tiny")
    took = iter([0.5, 0.3, 0.2, 0.4] + [0.6] * 20)
    times: list[float] = []

    def clock() -> float:
        """Called before a token and after it."""
        if not times:
            times.append(0.0)
        else:
            times.append(times[-1] + (next(took) if len(times) % 2 else 1.0))
        return times[-1]

    assert of_head(load_head(model), 1, clock) == pytest.approx((0.2,))


def test_a_draft_model_costs_what_its_steps_take(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch, lambda rows, width, _: seconds(rows, width))
    found = of_draft_model(passes.model, 12, lambda: passes.now)
    assert found == pytest.approx(tuple(seconds(rows, 1) for rows in range(1, 13)))
