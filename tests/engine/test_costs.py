"""What a step costs, as far as the scheduler is told (B61)."""

import pytest

from bushel.engine.costs import Stopwatch
from bushel.engine.schedule import Costs, Job, Policy, State, schedule


def stalled_once() -> Stopwatch:
    """100 tokens take 0.1 s, a decode step took 10 s once, and no time at all since."""
    watch = Stopwatch()
    watch.step(0.0, decode=False, tokens=100)
    watch.step(0.1, decode=True, tokens=0)
    watch.step(10.0, decode=True, tokens=100)
    return watch


def test_a_step_is_charged_to_the_work_started_before_it() -> None:
    watch = Stopwatch()
    watch.step(9.0, decode=True, tokens=0)  # waited for nothing
    assert watch.costs == Costs()
    watch.step(0.02, decode=True, tokens=100)
    assert watch.costs == Costs(0.02, 0.0)
    watch.step(0.12, decode=False, tokens=0)
    assert watch.costs.decode_step == 0.02
    assert watch.costs.prefill_token == pytest.approx(0.001)
    watch.step(5.0, decode=True, tokens=0)  # idle: charged to nobody
    assert watch.costs.decode_step == 0.02


def test_costs_follow_a_lasting_change_and_forgive_one_slow_step() -> None:
    watch = Stopwatch()
    for _ in range(20):
        watch.step(0.02, decode=True, tokens=0)
    watch.step(1.0, decode=True, tokens=0)
    for _ in range(20):
        watch.step(0.02, decode=True, tokens=0)
    assert watch.costs.decode_step == pytest.approx(0.02, rel=0.05)
    for _ in range(20):
        watch.step(0.2, decode=True, tokens=0)
    assert watch.costs.decode_step == pytest.approx(0.2, rel=0.05)


def test_one_slow_decode_step_is_forgotten_while_prompts_keep_coming() -> None:
    watch = stalled_once()
    for _ in range(100):
        watch.step(0.12, decode=True, tokens=100)
    prompt = Job(0, 5000, 0.0, 0)
    chunk = schedule(State(0.0, 1, 0, (prompt,), (), watch.costs), Policy()).chunks[0]
    assert chunk.tokens > Policy().least_chunk


def test_planning_survives_any_cost() -> None:
    prompt = Job(0, 5000, 0.0, 0)
    for seconds in (1e-300, 1e-308, 5e-324):
        plan = schedule(State(0.0, 1, 0, (prompt,), (), Costs(10.0, seconds)), Policy())
        assert plan.chunks[0].tokens == Policy().least_chunk
