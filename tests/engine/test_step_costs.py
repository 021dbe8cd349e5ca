"""What a step costs, as far as the scheduler is told (B61)."""

import pytest

from bushel.engine.plan import Costs, PendingPrompt, Policy, Row, State
from bushel.engine.scheduler import schedule
from bushel.engine.step_costs import Passes, Stopwatch

RUNNING = (Row(1),)
PASS = Passes(1, 100)


def stalled_once() -> Stopwatch:
    """100 tokens take 0.1 s, a decode step took 10 s once, and no time at all since."""
    watch = Stopwatch()
    watch.step(0.0, rows=0, passes=PASS)
    watch.step(0.1, rows=1)
    watch.step(10.0, rows=1, passes=PASS)
    return watch


def test_a_step_is_charged_to_the_work_started_before_it() -> None:
    watch = Stopwatch()
    watch.step(9.0, rows=1)  # waited for nothing
    assert watch.costs(1) == Costs(sure=False)
    watch.step(0.02, rows=1, passes=PASS)
    assert watch.costs(1) == Costs(0.02, 0.0, sure=False)
    watch.step(0.12, rows=0)
    assert watch.costs(1).decode_step == 0.02
    assert watch.costs(1).prefill_token == pytest.approx(0.001)
    watch.step(5.0, rows=1)  # idle: charged to nobody
    assert watch.costs(1).decode_step == 0.02


def test_costs_follow_a_lasting_change_and_forgive_one_slow_step() -> None:
    watch = Stopwatch()
    for _ in range(20):
        watch.step(0.02, rows=1)
    watch.step(1.0, rows=1)
    for _ in range(20):
        watch.step(0.02, rows=1)
    assert watch.costs(1).decode_step == pytest.approx(0.02, rel=0.05)
    for _ in range(20):
        watch.step(0.2, rows=1)
    assert watch.costs(1).decode_step == pytest.approx(0.2, rel=0.05)


def test_one_slow_decode_step_is_forgotten_while_prompts_keep_coming() -> None:
    watch = stalled_once()
    for _ in range(100):
        watch.step(0.12, rows=1, passes=PASS)
    prompt = PendingPrompt(0, 5000, 0.0, 0)
    chunk = schedule(State(0.0, RUNNING, (), (prompt,), (), watch.costs(1)), Policy()).chunks[0]
    assert chunk.tokens > Policy().least_chunk


def test_planning_survives_any_cost() -> None:
    prompt = PendingPrompt(0, 5000, 0.0, 0)
    for seconds in (1e-300, 1e-308, 5e-324):
        plan = schedule(State(0.0, RUNNING, (), (prompt,), (), Costs(10.0, seconds)), Policy())
        assert plan.chunks[0].tokens == Policy().least_chunk


def test_a_cpu_step_is_charged_to_its_own_work() -> None:
    watch = Stopwatch(behind=False)
    watch.step(0.02, rows=1)
    assert watch.costs(1) == Costs(0.02, 0.0, sure=False)
    watch.step(0.12, rows=1, passes=PASS)
    assert watch.costs(1).prefill_token == pytest.approx(0.001)


def charged(*steps: tuple[int, int]) -> Costs:
    """What is thought after steps of so many prompts and tokens, at 0.1 s and 1 ms each."""
    watch = Stopwatch(behind=False)
    for chunks, tokens in steps:
        watch.step(0.1 * chunks + 0.001 * tokens, rows=0, passes=Passes(chunks, tokens))
    return watch.costs(1)


def test_a_prompt_costs_something_beside_its_tokens() -> None:
    costs = charged((1, 500), (5, 60), (2, 300), (8, 80))
    assert costs.prefill_pass == pytest.approx(0.1, rel=0.01)
    assert costs.prefill_token == pytest.approx(0.001, rel=0.01)


def test_many_short_prompts_are_spread_over_steps() -> None:
    """Together they would take eight times as long as their tokens tell. B61."""
    costs = charged(*[(1, 500), (5, 60), (2, 300), (8, 80)] * 2)
    prompts = tuple(PendingPrompt(at, 10, 0.0, at) for at in range(8))
    plan = schedule(State(0.0, RUNNING, (), prompts, (), costs), Policy(token_gap=0.5))
    assert len(plan.chunks) == 3
    alone = schedule(State(0.0, (), (), prompts, (), costs), Policy(token_gap=0.5))
    assert len(alone.chunks) == 8  # nobody waits for a token


def test_little_is_planned_with_costs_that_were_hardly_measured() -> None:
    """The first steps of all may take three times as long as they were thought to. B61."""
    watch, tokens = Stopwatch(behind=False), list[int]()
    for _ in range(12):
        watch.step(0.1, rows=0, passes=PASS)
        prompt = PendingPrompt(0, 5000, 0.0, 0)
        state = State(0.0, RUNNING, (), (prompt,), (), watch.costs(1))
        tokens.append(schedule(state, Policy(token_gap=0.5)).chunks[0].tokens)
    assert set(tokens[:7]) == {128}  # in 0.25 s, and a multiple of 128
    assert set(tokens[7:]) == {384}


def test_no_cost_is_ever_negative() -> None:
    watch = Stopwatch(behind=False)
    for chunks, tokens, seconds in ((1, 10, 1.0), (1, 500, 0.1), (4, 40, 0.1), (1, 500, 2.0)):
        watch.step(seconds, rows=0, passes=Passes(chunks, tokens))
        assert min(watch.costs(1).prefill_token, watch.costs(1).prefill_pass) >= 0
