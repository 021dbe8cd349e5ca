"""What a step costs, as far as the scheduler is told (B61)."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.engine.plan import Costs, PendingPrompt, Policy, Row, State
from bushel.engine.scheduler import schedule
from bushel.engine.step_costs import Passes, Stopwatch

RUNNING = (Row(1),)
PASS = Passes(1, 100)
UNKNOWN = 1e9  # seconds


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
    assert watch.costs(1) == Costs(late=UNKNOWN)
    watch.step(0.02, rows=1, passes=PASS)
    assert watch.costs(1) == Costs(0.02, 0.0, late=UNKNOWN)
    watch.step(0.12, rows=0)
    assert watch.costs(1).decode_step == 0.02
    assert watch.costs(1).prompt(100) == pytest.approx(0.1)
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


def test_a_step_that_stood_still_says_little_of_what_such_steps_cost() -> None:
    """As the first one of its shape does, for which something is compiled."""
    watch = Stopwatch()
    for _ in range(10):
        watch.step(0.01, rows=8)
    watch.step(2.5, rows=8)
    assert watch.costs(8).decode_step <= 0.014
    for _ in range(10):
        watch.step(0.11, rows=8, passes=PASS)
    usual = watch.costs(8).prompt(100)
    watch.step(2.5, rows=8, passes=PASS)
    assert watch.costs(8).prompt(100) <= 1.5 * usual


def test_a_decode_step_that_was_too_slow_once_is_not_expected_of_other_rows() -> None:
    """Beside prompts no step shows what it takes alone, but it takes no longer than all of it."""
    watch = Stopwatch()
    watch.step(0.0, rows=8)
    watch.step(2.5, rows=4, passes=PASS)  # charged to the eight
    assert watch.costs(4).decode_step == 2.5
    watch.step(0.03, rows=4, passes=PASS)
    assert watch.costs(4).decode_step <= 0.03
    prompt = PendingPrompt(0, 5000, 0.0, 0)
    chunk = schedule(State(0.0, RUNNING, (), (prompt,), (), watch.costs(4)), Policy()).chunks[0]
    assert chunk.tokens > Policy().least_chunk


def test_prompts_that_seemed_to_cost_nothing_are_found_to_cost_something() -> None:
    watch = Stopwatch(behind=False)
    for _ in range(20):
        watch.step(0.0, rows=0, passes=PASS)
    assert watch.costs(1).prompt(100) == 0.0
    for _ in range(60):
        watch.step(2.0, rows=0, passes=PASS)
    assert watch.costs(1).prompt(100) == pytest.approx(2.0, rel=0.1)


def test_planning_survives_any_cost() -> None:
    prompt = PendingPrompt(0, 5000, 0.0, 0)
    for seconds in (1e-300, 1e-308, 5e-324):
        plan = schedule(State(0.0, RUNNING, (), (prompt,), (), Costs(10.0, seconds)), Policy())
        assert plan.chunks[0].tokens == Policy().least_chunk


def test_a_cpu_step_is_charged_to_its_own_work() -> None:
    watch = Stopwatch(behind=False)
    watch.step(0.02, rows=1)
    assert watch.costs(1) == Costs(0.02, 0.0, late=UNKNOWN)
    watch.step(0.12, rows=1, passes=PASS)
    assert watch.costs(1).prompt(100) == pytest.approx(0.1)


def charged(*steps: tuple[int, int]) -> Costs:
    """What is thought after steps of so many prompts and tokens, at 0.1 s and 1 ms each."""
    watch = Stopwatch(behind=False)
    watch.step(0.1, rows=1)
    for chunks, tokens in steps:
        watch.step(0.1 * chunks + 0.001 * tokens, rows=0, passes=Passes(chunks, tokens))
    return watch.costs(1)


def test_a_prompt_costs_something_beside_its_tokens() -> None:
    costs = charged((1, 500), (5, 60), (2, 300), (8, 80))
    assert costs.prefill_pass == pytest.approx(0.1, rel=0.1)
    assert costs.prefill_token == pytest.approx(0.001, rel=0.1)


def test_noise_among_steps_that_look_alike_does_not_make_tokens_cheap() -> None:
    """So that the first step of many tokens and few passes is as short as streams need it. B61."""
    chance, watch = random.Random(5), Stopwatch(behind=False)
    foreseen = list[float]()
    for _ in range(200):
        for _ in range(12):  # long prompts, in as many passes as they have tokens for
            passes = Passes()
            for _ in range(chance.randint(2, 3)):
                passes = passes.with_chunk(chance.randint(130, 150), 0)
            noise = 1 + chance.uniform(-0.15, 0.15)
            watch.step(0.001 * passes.tokens * noise, rows=0, passes=passes)
        many = Passes(1, 400, 12 * 33 * 16)  # short texts that share one
        foreseen.append(many.seconds(watch.costs(0)))
    assert min(foreseen) > 0.4 / 1.5


def test_many_short_prompts_are_spread_over_steps() -> None:
    """Together they would take eight times as long as their tokens tell. B61."""
    costs = charged(*[(1, 500), (5, 60), (2, 300), (8, 80)] * 2)
    prompts = tuple(PendingPrompt(at, 10, 0.0, at) for at in range(8))
    plan = schedule(State(0.0, RUNNING, (), prompts, (), costs), Policy(token_gap=0.7))
    assert len(plan.chunks) == 3
    alone = schedule(State(0.0, (), (), prompts, (), costs), Policy(token_gap=0.7))
    assert len(alone.chunks) == 8  # nobody waits for a token


def test_little_is_planned_with_costs_that_were_hardly_measured() -> None:
    """The first steps of all may take three times as long as they were thought to. B61."""
    watch, tokens = Stopwatch(behind=False), list[int]()
    for _ in range(12):
        watch.step(0.1, rows=0, passes=PASS)
        prompt = PendingPrompt(0, 5000, 0.0, 0)
        state = State(0.0, RUNNING, (), (prompt,), (), watch.costs(1))
        tokens.append(schedule(state, Policy(token_gap=1.1)).chunks[0].tokens)
    assert set(tokens[:7]) == {512}  # in 1 s, and a multiple of 128
    assert set(tokens[7:]) == {640}


def test_streams_are_given_more_room_after_a_late_step() -> None:
    """By as much as it was late, but never more than half of the gap, and for a while. B61."""
    watch, lates = Stopwatch(behind=False), list[float]()
    for seconds in (*[0.1] * 20, 0.15, *[0.1] * 99, 9.0):
        watch.step(seconds, rows=0, passes=PASS)
        lates.append(watch.costs(0).late)
    assert lates[19] == pytest.approx(0.0, abs=1e-9)
    assert lates[20] == pytest.approx(0.05, abs=1e-3)
    assert lates[-2] < 0.02
    assert lates[-1] == pytest.approx(0.1, abs=1e-2)  # twice as long as was foreseen, no more

    def planned(late: float) -> int:
        prompt = PendingPrompt(0, 5000, 0.0, 0)
        state = State(0.0, RUNNING, (), (prompt,), (), Costs(0.0, 0.0002, late=late))
        return schedule(state, Policy(token_gap=0.5)).chunks[0].tokens

    spared = [planned(late) for late in (0.0, 0.1, 0.2, 0.3, UNKNOWN)]
    assert spared == [1536, 1536, 1408, 1152, 1152]


def test_who_promised_no_gap_can_plan() -> None:
    """As `bushel check` does."""
    for costs in (Stopwatch().costs(1), Costs(0.1, 0.001, late=0.5)):
        state = State(0.0, RUNNING, (), (PendingPrompt(0, 5000, 0.0, 0),), (), costs)
        plan = schedule(state, Policy(token_gap=math.inf))
        assert plan.chunks[0].tokens > 0


TIMES = st.floats(0, 1e4) | st.sampled_from([0.0, 5e-324, 1e-300, 1e-9])
CHUNKS = st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 1 << 20)), max_size=5)


@given(st.lists(st.tuples(TIMES, st.integers(0, 64), CHUNKS), max_size=30), st.booleans())
def test_no_cost_is_ever_negative(steps: list[Any], behind: bool) -> None:
    watch = Stopwatch(behind=behind)
    for seconds, rows, chunks in steps:
        passes = Passes()
        for tokens, done in chunks:
            passes = passes.with_chunk(tokens, done)
        watch.step(seconds, rows=rows, passes=passes)
        assert min(watch.costs(rows)) >= 0
        assert all(map(math.isfinite, watch.costs(rows)))
