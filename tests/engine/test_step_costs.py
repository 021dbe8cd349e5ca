"""What a step costs, as far as the scheduler is told (B61)."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.engine import scheduler
from bushel.engine.plan import Costs, PendingPrompt, Policy, Row, State
from bushel.engine.scheduler import schedule
from bushel.engine.step_costs import Passes, Stopwatch
from tests.depth import often
from tests.engine.device_simulation import AHEAD, Asked, ClosedLoops, Device, OpenLoop, Speed

RUNNING = (Row(1),)
NONE, PASS = Passes(), Passes(1, 100)
UNKNOWN = 1e9  # seconds


class Watch(Stopwatch):
    """Of steps one behind the other."""

    now = 0.0

    def took(self, seconds: float, *, rows: int, passes: Passes = NONE, read: bool = False) -> None:
        before, self.now = self.now, self.now + seconds
        some = [passes] if passes.number else []
        self.step(before, self.now, self.now, rows=rows, passes=some, read=read)


def stalled_once() -> Watch:
    """100 tokens take 0.1 s, a decode step took 10 s once, and no time at all since."""
    watch = Watch()
    watch.took(0.0, rows=0, passes=PASS)
    watch.took(0.1, rows=0, passes=PASS)
    watch.took(10.0, rows=1)
    return watch


def test_time_is_attributed_to_what_was_done_in_it() -> None:
    """A step waits for all that the step before it has launched."""
    watch = Stopwatch()
    watch.step(0.0, 0.0, 0.01, rows=1)  # waited for nothing
    assert watch.costs(1) == Costs(late=UNKNOWN)
    watch.step(0.01, 0.02, 0.11, rows=1, passes=[PASS])  # it took long to launch these
    assert watch.costs(1) == (pytest.approx(0.02), 0, 0, 0, UNKNOWN)
    watch.step(0.11, 0.14, 0.14, rows=1)  # waited for them
    assert watch.costs(1).decode_step == pytest.approx(0.02)
    assert watch.costs(1).prompt(100) == pytest.approx(0.1)
    watch.step(0.14, 0.16, 0.16, rows=0)
    assert watch.costs(1).decode_step == pytest.approx(0.02)
    watch.step(5.0, 5.0, 5.01, rows=1)  # idle: charged to nobody
    watch.step(5.01, 5.02, 5.02, rows=0)
    assert watch.costs(1).decode_step == pytest.approx(0.02)
    assert watch.costs(1).prompt(100) == pytest.approx(0.1)


def test_where_nobody_decodes_all_passes_but_the_last_are_waited_for() -> None:
    watch = Stopwatch()
    watch.step(0.0, 0.0, 0.1, rows=0, passes=[PASS, PASS])
    assert watch.costs(1).prompt(100) == pytest.approx(0.1)
    watch.step(0.1, 0.1, 0.3, rows=0, passes=[PASS, PASS])
    watch.step(0.3, 0.3, 0.6, rows=0, passes=[PASS, PASS, PASS])
    assert watch.costs(1).prompt(100) == pytest.approx(0.1)
    watch.step(0.6, 0.7, 0.7, rows=1)  # for the last
    assert watch.costs(1).prompt(100) == pytest.approx(0.1)


def test_a_decode_step_takes_no_longer_because_prompts_are_launched_behind_it() -> None:
    """It is read before they are, and they take about as long to launch as to run."""
    watch = Stopwatch()
    for at in (0.0, 1.0, 2.0):
        watch.step(at, at, at + 0.001, rows=1)
        watch.step(at + 0.001, at + 0.005, at + 0.105, rows=0, passes=[PASS])  # the prompt's 0.1 s
        watch.step(at + 0.105, at + 0.105, at + 0.105, rows=0)
    assert watch.costs(1).decode_step == pytest.approx(0.005)
    assert watch.costs(1).prompt(100) == pytest.approx(0.1)


def test_a_round_of_drafts_is_waited_for_where_it_is_launched() -> None:
    """As soon as what follows may be: with prompts behind it, when these are waited for."""
    watch = Stopwatch()
    watch.step(0.0, 0.0, 0.03, rows=2, read=True)
    assert watch.costs(2).decode_step == pytest.approx(0.03)
    watch.step(0.5, 0.5, 0.6, rows=2, passes=[PASS], read=True)
    assert watch.costs(2).prompt(100) == 0
    watch.step(0.6, 0.63, 0.66, rows=2, read=True)
    assert watch.costs(2).decode_step == pytest.approx(0.03)
    assert watch.costs(2).prompt(100) == pytest.approx(0.1)


def test_the_host_may_dawdle_between_two_steps() -> None:
    """What the device did meanwhile took no less time."""
    watch, now = Stopwatch(), 0.0
    for _ in range(20):
        watch.step(now, now + 0.001, now + 0.001, rows=1)  # what it waits for was done long ago
        now += 0.02
    assert watch.costs(1).decode_step == pytest.approx(0.02)
    watch.rest()
    watch.step(now + 500, now + 500.02, now + 500.02, rows=1)
    watch.step(now + 500.02, now + 500.04, now + 500.04, rows=1)
    assert watch.costs(1).decode_step == pytest.approx(0.02)


def test_costs_follow_a_lasting_change_and_forgive_one_slow_step() -> None:
    watch = Watch()
    for _ in range(20):
        watch.took(0.02, rows=1)
    watch.took(1.0, rows=1)
    for _ in range(20):
        watch.took(0.02, rows=1)
    assert watch.costs(1).decode_step == pytest.approx(0.02, rel=0.05)
    for _ in range(20):
        watch.took(0.2, rows=1)
    assert watch.costs(1).decode_step == pytest.approx(0.2, rel=0.05)


def test_one_slow_decode_step_is_forgotten_while_prompts_keep_coming() -> None:
    watch = stalled_once()
    for _ in range(100):
        watch.took(0.12, rows=1, passes=PASS)
    prompt, costs = PendingPrompt(0, 5000, 0.0, 0), watch.costs(1)
    chunk = schedule(State(0.0, RUNNING, (), (prompt,), (), costs), Policy()).chunks[0]
    assert chunk.tokens > Policy().least_chunk


def test_a_step_that_stood_still_says_little_of_what_such_steps_cost() -> None:
    """As the first one of its shape does, for which something is compiled."""
    watch = Watch()
    for _ in range(10):
        watch.took(0.01, rows=8)
    watch.took(2.5, rows=8)
    assert watch.costs(8).decode_step <= 0.014
    for _ in range(2):
        watch.took(0.01, rows=8, passes=PASS)
    for _ in range(10):
        watch.took(0.11, rows=8, passes=PASS)
    usual = watch.costs(8).prompt(100)
    watch.took(2.5, rows=8, passes=PASS)
    assert watch.costs(8).prompt(100) <= 1.5 * usual


def test_a_decode_step_that_was_too_slow_once_is_not_expected_of_other_rows() -> None:
    """Beside prompts no step shows what it takes alone, but it takes no longer than all of it."""
    watch = Watch()
    watch.took(0.0, rows=8)
    watch.took(2.5, rows=4, passes=PASS)  # charged to the eight
    assert watch.costs(4).decode_step == 2.5
    watch.took(0.03, rows=4, passes=PASS)
    assert watch.costs(4).decode_step <= 0.03
    prompt = PendingPrompt(0, 5000, 0.0, 0)
    chunk = schedule(State(0.0, RUNNING, (), (prompt,), (), watch.costs(4)), Policy()).chunks[0]
    assert chunk.tokens > Policy().least_chunk


def test_prompts_that_seemed_to_cost_nothing_are_found_to_cost_something() -> None:
    watch = Watch(behind=False)
    for _ in range(20):
        watch.took(0.0, rows=0, passes=PASS)
    assert watch.costs(1).prompt(100) == 0.0
    for _ in range(60):
        watch.took(2.0, rows=0, passes=PASS)
    assert watch.costs(1).prompt(100) == pytest.approx(2.0, rel=0.1)


def test_prompts_that_are_restored_as_a_whole_are_no_passes() -> None:
    """They run nothing, and nothing of what the others take is put down to them."""
    assert Passes().with_chunk(0, 500) == Passes()
    assert Costs(0.01, 0.001, 0.1).prompt(0, 500) == 0.0
    alone, beside = Watch(), Watch()
    for _ in range(40):
        restored = Passes().with_chunk(0, 64).with_chunk(0, 64)
        for watch, passes in ((alone, Passes()), (beside, restored)):
            watch.took(0.0325, rows=1)  # waits for the prompt before
            watch.took(0.02, rows=1, passes=passes.with_chunk(100, 0))
    assert beside.costs(1) == alone.costs(1)
    assert beside.costs(1).prompt(100) == pytest.approx(0.0125, rel=0.05)


def test_planning_survives_any_cost() -> None:
    prompt = PendingPrompt(0, 5000, 0.0, 0)
    for seconds in (1e-300, 1e-308, 5e-324):
        plan = schedule(State(0.0, RUNNING, (), (prompt,), (), Costs(10.0, seconds)), Policy())
        assert plan.chunks[0].tokens == Policy().least_chunk


def test_a_cpu_step_is_charged_to_its_own_work() -> None:
    watch = Watch(behind=False)
    watch.took(0.02, rows=1)
    assert watch.costs(1) == Costs(0.02, 0.0, late=UNKNOWN)
    watch.took(0.12, rows=1, passes=PASS)
    assert watch.costs(1).prompt(100) == pytest.approx(0.1)


def charged(*steps: tuple[int, int]) -> Costs:
    """What is thought after steps of so many prompts and tokens, at 0.1 s and 1 ms each."""
    watch = Watch(behind=False)
    watch.took(0.1, rows=1)
    for chunks, tokens in steps:
        watch.took(0.1 * chunks + 0.001 * tokens, rows=0, passes=Passes(chunks, tokens))
    return watch.costs(1)


def test_a_prompt_costs_something_beside_its_tokens() -> None:
    costs = charged((1, 500), (5, 60), (2, 300), (8, 80))
    assert costs.prefill_pass == pytest.approx(0.1, rel=0.1)
    assert costs.prefill_token == pytest.approx(0.001, rel=0.1)


def test_noise_among_steps_that_look_alike_does_not_make_tokens_cheap() -> None:
    """So that the first step of many tokens and few passes is as short as streams need it. B61."""
    chance, watch = random.Random(5), Watch(behind=False)
    foreseen = list[float]()
    for _ in range(200):
        for _ in range(12):  # long prompts, in as many passes as they have tokens for
            passes = Passes()
            for _ in range(chance.randint(2, 3)):
                passes = passes.with_chunk(chance.randint(130, 150), 0)
            noise = 1 + chance.uniform(-0.15, 0.15)
            watch.took(0.001 * passes.tokens * noise, rows=0, passes=passes)
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
    watch, tokens = Watch(behind=False), list[int]()
    for _ in range(12):
        watch.took(0.1, rows=0, passes=PASS)
        prompt = PendingPrompt(0, 5000, 0.0, 0)
        state = State(0.0, RUNNING, (), (prompt,), (), watch.costs(1))
        tokens.append(schedule(state, Policy(token_gap=1.1)).chunks[0].tokens)
    assert set(tokens[:7]) == {512}  # in 1 s, and a multiple of 128
    assert set(tokens[7:]) == {640}


def test_streams_are_given_more_room_after_a_late_step() -> None:
    """By as much as it was late, but never more than half of the gap, and for a while. B61."""
    watch, lates = Watch(behind=False), list[float]()
    for seconds in (*[0.1] * 20, 0.15, *[0.1] * 99, 9.0):
        watch.took(seconds, rows=0, passes=PASS)
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


@given(
    st.lists(st.tuples(TIMES, TIMES, st.integers(0, 64), CHUNKS, st.booleans()), max_size=30),
    st.booleans(),
)
def test_no_cost_is_ever_negative(steps: list[Any], behind: bool) -> None:
    watch, now = Stopwatch(behind=behind), 0.0
    for waiting, rest, rows, chunks, read in steps:
        passes = [Passes().with_chunk(tokens, done) for tokens, done in chunks]
        waited, ended = now + waiting, now + waiting + rest
        watch.step(now, waited, ended, rows=rows, passes=passes, read=read and rows > 0)
        now = ended
        assert min(watch.costs(rows)) >= 0
        assert all(map(math.isfinite, watch.costs(rows)))


DAWDLING = [(0.0, 0.0), (0.02, 0.03), (0.2, 0.02)]


def rounds(
    seed: int, watch: Stopwatch, often: float = 0.02, most: float = 0.03, ahead: float = AHEAD
) -> list[Speed]:
    """Of requests of 32 clients, one after the other."""
    return [ClosedLoops(10 * seed + at, watch, often, most, ahead).run() for at in range(4)]


# Passes of which the host may be ahead, and when the first tokens have come.
DEVICES = {"far behind": (100.0, 1.4), "as MLX has it": (AHEAD, 1.45)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("often", "most"), DAWDLING)
@pytest.mark.parametrize("seed", often(range(3), 0))
def test_streams_and_prompts_of_many_clients(
    seed: int, often: float, most: float, device: str
) -> None:
    """Whatever the host does in between, tokens come within the gap, and prompts soon. B61."""
    ahead, first = DEVICES[device]
    for speed in rounds(seed, Stopwatch(), often, most, ahead):
        assert speed.gap_p95 < Policy().token_gap
        assert speed.first_p95 < first
        assert speed.tokens_per_second > 1100


SLOW = Device(decode=0.03, forward=0.03)  # a large batch, or a smaller GPU
GIVEN = 9  # prompts by which its costs are known


def two_prompts_beside_a_stream(first: int, apart: float, ahead: float) -> float:
    """The stream's largest gap."""
    known = [Asked(0.2 * at, 300 + 400 * at, 8) for at in range(GIVEN)]
    stream = Asked(10.0, 64, 160)
    prompts = [Asked(11.0, first, 8), Asked(11.0 + apart, 40_000, 8)]
    loop = OpenLoop([*known, stream, *prompts], Stopwatch(), ahead, SLOW)
    loop.run()
    return loop.gaps[GIVEN]


@pytest.mark.parametrize("ahead", [AHEAD, 0.0, 100.0])
def test_a_stream_that_waited_for_a_prompt_does_not_wait_as_long_for_the_next(ahead: float) -> None:
    """Its token of the step between them is told when the second one has run. B61."""
    gaps = [
        two_prompts_beside_a_stream(first, apart, ahead)
        for first in (1_000, 4_000, 6_500)
        for apart in (0.03, 0.1, 0.15)
    ]
    assert max(gaps) < Policy().token_gap


def test_arrivals_of_all_lengths_beside_streams_keep_to_the_gap() -> None:
    """Poisson arrivals, prompts of 64 to 8,192 tokens, on a device whose steps take 30 ms. B61."""
    chance, at, asked = random.Random(1), 0.0, list[Asked]()
    for _ in range(150):
        length = round(64 * 128 ** chance.random())
        asked.append(Asked(at, length, chance.randint(30, 200)))
        at += chance.expovariate(1) * 0.35
    loop = OpenLoop(asked, Stopwatch(), AHEAD, SLOW)
    loop.run()
    assert max(loop.gaps) < Policy().token_gap


def test_many_short_prompts_beside_streams_keep_to_the_gap() -> None:
    """They share passes: 200 prompts of up to 256 tokens, 30 ms apart. B61."""
    chance = random.Random(2)
    known = [Asked(0.2 * at, 300 + 400 * at, 8) for at in range(GIVEN)]
    asked = [Asked(5.0 + 0.03 * at, chance.randint(16, 256), 60) for at in range(200)]
    loop = OpenLoop([*known, *asked], Stopwatch(), AHEAD, SLOW)
    loop.run()
    assert max(loop.gaps[GIVEN:]) < Policy().token_gap


@pytest.mark.parametrize("believed", [0.0003, 2.5])
def test_what_was_believed_wrongly_of_decode_steps_is_corrected(believed: float) -> None:
    """While prompts keep coming: 32 clients had waited 20 s for their first tokens. B61."""
    watch = Stopwatch()
    rounds(0, watch)
    for steps in watch._decode.values():
        steps.extend([believed] * 5)
    for speed in rounds(1, watch):
        assert speed.first_p95 < 4.0
        assert speed.gap_p95 < Policy().token_gap


def foresight(watch: Stopwatch) -> list[float]:
    """Of what the device took for the prompts of a step, how much was foreseen."""
    rounds(0, watch)
    loops = [ClosedLoops(10 + at, watch, 0.0, 0.0) for at in range(3)]
    for loop in loops:
        loop.run()
    return [foreseen / took for loop in loops for foreseen, took in loop.foreseen]


def test_what_prompts_take_is_foreseen() -> None:
    """Although MLX lets the host get hardly ahead of the device, and launching is waiting. B61."""
    told = foresight(Stopwatch())
    assert len(told) > 100
    assert sum(0.85 < share < 1.15 for share in told) > 0.9 * len(told)


def test_control_the_clock_is_read_when_prompts_have_been_launched() -> None:
    class Late(Stopwatch):
        def step(self, began: float, waited: float, ended: float, **work: Any) -> None:
            super().step(began, ended, ended, **work)

    told = foresight(Late())
    assert sum(0.85 < share < 1.15 for share in told) < 0.5 * len(told)


@pytest.mark.long
def test_control_prompts_are_given_what_few_rows_are_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """To those that were thought to decode in no time, hardly any."""

    def worth_alone(running: int, costs: Costs, policy: Policy) -> float:
        return seconds_for_prompts(running, costs._replace(prefill_pass=0.0), policy)

    seconds_for_prompts = scheduler._seconds_for_prompts
    monkeypatch.setattr(scheduler, "_seconds_for_prompts", worth_alone)
    watch = Stopwatch()
    rounds(0, watch)
    for steps in watch._decode.values():
        steps.extend([0.0003] * 5)
    assert max(speed.first_p95 for speed in rounds(1, watch)) > 10
