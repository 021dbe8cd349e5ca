"""Who gets the machine next: every small state, and simulated traffic."""

import ast
import itertools
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.core import footprint
from bushel.engine import plan as nouns
from bushel.engine import scheduler, slot_sharing
from bushel.engine.engine import _GO_ON
from bushel.engine.plan import Chunk, Costs, PendingPrompt, Plan, Policy, Row, State, Work
from bushel.engine.scheduler import _affordable, schedule
from tests.depth import ALL, some

from .scheduler_simulation import OVERHEAD, Arrival, Schedule, Trace, simulate

POLICY = Policy(3, 32, 8, decode_waits=True, token_gap=0.5, start_wait=2.0)
NOW = 100.0
REMAINING = (0, 1, 5, 16, 40)
FRESH = 1.0
OVERDUE = (3.0, 5.0, 4.0)  # by place: who has waited longest is not who came first
# Nothing measured yet; room for 11 tokens beside a decode step; room for none.
COSTS = (Costs(), Costs(0.1, 0.02), Costs(0.6, 0.02))
# Seconds of prompts since the last decode step: each comes with each of the costs.
SINCE = (0.0, 0.15, 0.3, 0.45)


def states() -> Iterator[State]:
    """Every combination of up to three prompts with any number of rows; 155,556 states."""
    since = itertools.cycle(SINCE)
    shapes = [
        tuple(
            PendingPrompt(at, remaining, NOW - age, at, group=str(at))
            for at, (remaining, age) in enumerate(jobs)
        )
        for count in range(4)
        for jobs in itertools.product(
            *(itertools.product(REMAINING, (FRESH, OVERDUE[at])) for at in range(count))
        )
    ]
    for jobs in shapes:
        for split, running, ready, costs in itertools.product(
            range(len(jobs) + 1), range(4), range(3), COSTS
        ):
            yield State(
                NOW,
                rows(running),
                rows(ready, 10),
                jobs[:split],
                jobs[split:],
                costs,
                since_decode=next(since),
            )


def rows(count: int, first: int = 20) -> tuple[Row, ...]:
    """Of as many requests."""
    return tuple(Row(it, it, NOW - 9.0, group=str(it)) for it in range(first, first + count))


def broken_promise(state: State, plan: Plan) -> str | None:
    """The first promise of the module's docstring that the plan breaks, if any."""
    slots = len(state.running) + len(state.ready) + len(state.prefilling)
    join = len(plan.join)
    running = len(state.running) + join
    could_run = min(3, len(state.running) + len(state.ready))
    started = [replace(job, last_served=NOW) for job in state.waiting[: len(plan.admit)]]
    admitted = [*state.prefilling, *started]
    queue = sorted(admitted, key=urgency)
    total = sum(chunk.tokens for chunk in plan.chunks)
    seconds = total * state.costs.prefill_token
    remaining = {job.id: job.remaining for job in admitted}
    least = min(8, max(remaining.values(), default=0))
    promises = {
        "rows fit the batch": running <= 3
        and plan.join == tuple(row.id for row in state.ready[:join]),
        "rows are not left empty": running == could_run or not plan.decode,
        "nobody yields who holds no more than others": not plan.preempt and not plan.drop,
        "prompts fit the slots": not plan.admit or slots + len(plan.admit) <= 3,
        "slots are not left empty": slots + len(plan.admit) >= 3
        or len(plan.admit) == len(state.waiting),
        "admission is in order of arrival": plan.admit
        == tuple(job.id for job in state.waiting[: len(plan.admit)]),
        "chunks go to admitted prompts, one each, the longest overdue first": [
            chunk.job for chunk in plan.chunks
        ]
        == [job.id for job in queue[: len(plan.chunks)]],
        "chunks end where their prompts end": all(
            0 <= chunk.tokens <= remaining[chunk.job] for chunk in plan.chunks
        ),
        "tokens fit the budget": total <= 32,
        "tokens fit the gap": not running
        or state.costs.decode_step + seconds
        <= max(0.5, state.costs.decode_step + 8 * state.costs.prefill_token) + 1e-9,
        "decode is left out only while it can wait": plan.decode == (could_run > 0)
        or (
            len(state.running) > 0
            and len(plan.chunks) > 0
            and state.since_decode + seconds + state.costs.decode_step <= 0.5 + 1e-9
        ),
        "decode is not in the way of prompts": not (plan.decode and state.running)
        or state.since_decode + seconds + state.costs.decode_step > 0.325 - 1e-9
        or not seconds,
        "prefill is never left out": not admitted or len(plan.chunks) > 0,
        "the first prompt gets a real piece": not plan.chunks
        or plan.chunks[0].tokens >= min(remaining[plan.chunks[0].job], least),
    }
    return next((name for name, kept in promises.items() if not kept), None)


def urgency(job: PendingPrompt) -> tuple[int, float]:
    overdue = NOW - job.last_served >= POLICY.start_wait
    return (0, job.last_served) if overdue else (1, job.order)


def test_every_small_state_gets_a_plan_that_keeps_all_promises() -> None:
    """No mix of rows and prompts makes the scheduler break a bound. B61."""
    for state in itertools.islice(states(), 0, None, 1 if ALL else 7):
        broken = broken_promise(state, schedule(state, POLICY))
        assert broken is None, (broken, state)


def test_the_same_state_gives_the_same_plan_in_whatever_order_prompts_are_listed() -> None:
    for state in itertools.islice(states(), 0, None, 23 if ALL else 113):
        plan = schedule(state, POLICY)
        listed = replace(state, prefilling=state.prefilling[::-1])
        assert schedule(replace(state), POLICY) == plan == schedule(listed, POLICY)


def no_age(state: State, policy: Policy) -> Plan:
    return schedule(state, replace(policy, start_wait=math.inf))


def shortest_first(state: State, policy: Policy) -> Plan:
    def shortest(jobs: tuple[PendingPrompt, ...]) -> tuple[PendingPrompt, ...]:
        return tuple(replace(job, order=job.remaining) for job in jobs)

    listed = replace(state, prefilling=shortest(state.prefilling), waiting=shortest(state.waiting))
    return no_age(listed, policy)


def decode_when_nothing_else(state: State, policy: Policy) -> Plan:
    plan = schedule(state, policy)
    return replace(plan, decode=plan.decode and not plan.chunks)


def decode_always(state: State, policy: Policy) -> Plan:
    return schedule(replace(state, since_decode=1.0), policy)


def decode_too_late(state: State, policy: Policy) -> Plan:
    return schedule(replace(state, since_decode=0.0), policy)


def prefill_when_nothing_else(state: State, policy: Policy) -> Plan:
    plan = schedule(state, policy)
    return replace(plan, chunks=() if plan.decode else plan.chunks)


def whole_prompts(state: State, policy: Policy) -> Plan:
    return schedule(replace(state, costs=Costs()), replace(policy, prefill_chunk=1 << 20))


def no_costs(state: State, policy: Policy) -> Plan:
    return schedule(replace(state, costs=Costs()), policy)


def one_row_too_many(state: State, policy: Policy) -> Plan:
    return schedule(state, replace(policy, max_batch=policy.max_batch + 1))


def last_come_first_admitted(state: State, policy: Policy) -> Plan:
    waiting = tuple(replace(job, order=-job.order) for job in state.waiting)
    return schedule(replace(state, waiting=waiting), policy)


def two_chunks_each(state: State, policy: Policy) -> Plan:
    plan = schedule(state, policy)
    halves = [
        Chunk(chunk.job, part)
        for chunk in plan.chunks
        for part in (chunk.tokens // 2, chunk.tokens - chunk.tokens // 2)
    ]
    return replace(plan, chunks=tuple(halves))


@pytest.mark.parametrize(
    "wrong",
    [
        no_age,
        shortest_first,
        decode_when_nothing_else,
        decode_always,
        decode_too_late,
        prefill_when_nothing_else,
        whole_prompts,
        no_costs,
        one_row_too_many,
        last_come_first_admitted,
        two_chunks_each,
    ],
)
def test_control_a_wrong_scheduler_breaks_a_promise_in_some_small_state(wrong: Schedule) -> None:
    assert any(broken_promise(state, wrong(state, POLICY)) for state in states())


# -- traffic -------------------------------------------------------------------------------


def gap_bound(policy: Policy, costs: Costs) -> float:
    least = min(policy.least_chunk, policy.prefill_chunk)
    chunk = costs.prefill_pass + least * costs.prefill_token
    return max(policy.token_gap, costs.decode_step + chunk) + OVERHEAD + 1e-9


def complaints(trace: Trace, policy: Policy, costs: Costs) -> set[str]:
    found = {
        "gap": trace.longest_gap() > gap_bound(policy, costs),
        "wait": bool(trace.late(policy.start_wait)),
        "rows": trace.most_rows > policy.max_batch,
        "starved": not trace.finished,
    }
    return {name for name, wrong in found.items() if wrong}


arrivals = st.lists(
    st.builds(
        Arrival,
        at=st.floats(0, 30),
        prompt=st.one_of(st.integers(0, 64), st.integers(0, 4000)),
        reply=st.integers(1, 60),
        choices=st.integers(1, 3),
    ),
    min_size=1,
    max_size=12,
)
policies = st.builds(
    Policy,
    decode_waits=st.booleans(),
    max_batch=st.integers(1, 5),
    prefill_chunk=st.sampled_from([8, 16, 64, 512]),
    least_chunk=st.sampled_from([1, 16, 64]),
    token_gap=st.floats(0.02, 1),
    start_wait=st.floats(0.05, 3),
)
measured = st.builds(
    Costs,
    st.floats(1e-3, 0.3),
    st.floats(1e-4, 5e-3),
    st.sampled_from([0.0, 0.01, 0.1]),
    st.just(0.0),
)


@settings(derandomize=True, max_examples=some(100))
@given(arrivals, policies, measured)
def test_token_gaps_and_prompt_waits_stay_bounded_and_everyone_finishes(
    traffic: list[Arrival], policy: Policy, costs: Costs
) -> None:
    """Under any traffic no stream stalls and no prompt waits too long. B61."""
    assert complaints(simulate(traffic, policy, costs), policy, costs) == set()


# Someone talks all the time, a crowd passes, a long prompt arrives, and short ones keep coming.
CROWD = [Arrival(0.0, 10, 20)] * 10
TALK = Arrival(0.0, 10, 400)
LONG = Arrival(0.5, 3000, 5)
SHORT = [Arrival(1.0 + 0.05 * at, 60, 1) for at in range(300)]
TRAFFIC = [*CROWD, TALK, LONG, *SHORT]
BUSY = Policy(8, 32, 16, decode_waits=True, token_gap=0.1, start_wait=1.0)
SECONDS = Costs(decode_step=0.02, prefill_token=0.001)


def test_a_long_prompt_among_many_short_ones_keeps_both_bounds() -> None:
    """Neither the long prompt nor the streams beside it wait too long. B61."""
    assert complaints(simulate(TRAFFIC, BUSY, SECONDS), BUSY, SECONDS) == set()


def test_an_admitted_prompt_does_not_wait_longer_because_the_queue_is_longer() -> None:
    """Two hundred requests behind it do not delay its first token. B61."""
    policy = Policy(max_batch=4, prefill_chunk=64, token_gap=1.0, start_wait=2.0)
    queue = [Arrival(0.1 * at, 64, 1) for at in range(200)]
    trace = simulate([Arrival(0.0, 2000, 5), *queue], policy, Costs(0.02, 0.01))
    longest = max(wait.seconds for wait in trace.waits)
    assert longest <= policy.start_wait + (policy.max_batch + 1) * trace.longest_step


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (no_age, "wait"),
        pytest.param(shortest_first, "wait", marks=pytest.mark.long),
        (decode_when_nothing_else, "gap"),
        pytest.param(prefill_when_nothing_else, "wait", marks=pytest.mark.long),
        (whole_prompts, "gap"),
        (one_row_too_many, "rows"),
    ],
)
def test_control_a_wrong_scheduler_breaks_a_bound_in_the_same_traffic(
    wrong: Schedule, complaint: str
) -> None:
    assert complaint in complaints(simulate(TRAFFIC, BUSY, SECONDS, wrong), BUSY, SECONDS)


@pytest.mark.long
def test_control_the_simulation_notices_a_prompt_that_never_runs() -> None:
    def forgets(state: State, policy: Policy) -> Plan:
        plan = schedule(state, policy)
        return replace(plan, chunks=tuple(chunk for chunk in plan.chunks if chunk.job != 11))

    assert "starved" in complaints(simulate(TRAFFIC, BUSY, SECONDS, forgets), BUSY, SECONDS)


# -- a pure function -----------------------------------------------------------------------

PLANNING = (nouns, slot_sharing, scheduler)  # each needs those before it
ALONE = """
import importlib.util, sys, types
for name in ("mlx", "numpy"):
    sys.modules[name] = None
for name in ("bushel", "bushel.engine"):  # packages without a file
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, path in zip(sys.argv[1::2], sys.argv[2::2]):
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
from bushel.engine.plan import Policy, Row, State
from bushel.engine.scheduler import _affordable, schedule
print(schedule(State(0.0, (), (Row(7),)), Policy()).join[0])
"""


def alone(*parts: ModuleType) -> subprocess.CompletedProcess[str]:
    files = [text for part in parts for text in (part.__name__, str(part.__file__))]
    command = [sys.executable, "-I", "-c", ALONE, *files]
    return subprocess.run(command, capture_output=True, text=True)


def test_planning_needs_neither_mlx_nor_the_rest_of_bushel() -> None:
    done = alone(*PLANNING)
    assert done.stdout.strip() == "7", done.stderr


def test_control_what_planning_needs_besides_is_missed() -> None:
    assert "No module named 'bushel.engine.slot_sharing'" in alone(nouns, scheduler).stderr


@pytest.mark.parametrize("part", [*PLANNING, footprint])
def test_planning_reads_no_clock_and_rolls_no_dice(part: ModuleType) -> None:
    tree = ast.parse(Path(str(part.__file__)).read_text())
    plain = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    origins = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {"bushel.core.footprint", "bushel.core.options", *(part.__name__ for part in PLANNING)}
    plain_data = {"collections", "collections.abc", "dataclasses", "heapq", "typing"}
    allowed = {"__future__", *plain_data, *ours}
    assert plain | origins <= allowed


@pytest.mark.parametrize("running", [1, 2, 3])
def test_the_engine_goes_on_as_the_scheduler_would_say(running: int) -> None:
    """The engine does not ask when only running rows are left; the answer is this one."""
    assert schedule(State(NOW, rows(running)), Policy(max_batch=3)) == _GO_ON


# -- whole texts -------------------------------------------------------------------------------

WHOLE = Policy(256, 8192, 16, pack=8192, whole=True)
TIMED = Costs(0.0, 1e-5, 1e-3)


def encoded(lengths: list[int], costs: Costs = TIMED) -> list[list[int]]:
    """The passes that texts of these lengths share, step by step until none is left."""
    left = dict(enumerate(lengths))
    passes: list[list[int]] = []
    while left:
        jobs = tuple(PendingPrompt(at, length, NOW, at) for at, length in left.items())
        plan = schedule(State(NOW, prefilling=jobs, costs=costs), WHOLE)
        assert plan.chunks
        for chunk in plan.chunks:
            assert chunk.tokens == left[chunk.job]  # none is cut
            passes += [] if chunk.packed else [[]]
            passes[-1].append(left.pop(chunk.job))
    return passes


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=64))
@settings(max_examples=some(200), deadline=None)
def test_whole_texts_are_never_cut_and_padded_little(lengths: list[int]) -> None:
    for costs in (Costs(), TIMED):
        passes = encoded(lengths, costs)
        assert sorted(itertools.chain(*passes)) == sorted(lengths)
        for lengths_of_pass in passes:
            padded = len(lengths_of_pass) * max(lengths_of_pass)
            if len(lengths_of_pass) > 1:
                assert padded <= WHOLE.prefill_chunk
                assert padded <= 512 or 4 * sum(lengths_of_pass) >= 3 * padded


def test_short_texts_share_few_passes() -> None:
    assert len(encoded([16] * 256)) == 1
    assert len(encoded([5, 300] * 32)) <= 4


@given(
    lengths=st.lists(st.integers(1, 400), min_size=1, max_size=24),
    each=st.floats(1e-4, 2e-3),
    start=st.floats(0.0, 0.1),
)
def test_the_padding_of_a_shared_pass_is_part_of_what_it_takes(
    lengths: list[int], each: float, start: float
) -> None:
    """Streams wait for it as for anything else. B61."""
    prompts = tuple(
        PendingPrompt(at, length, NOW, at, group=str(at)) for at, length in enumerate(lengths)
    )
    costs = Costs(0.02, each, start)
    policy = Policy(max_batch=64, pack=512)
    chunks = schedule(State(NOW, rows(4, 100), (), prompts, (), costs), policy).chunks
    taken, width, count = 0.0, 0, 0
    for at, chunk in enumerate(chunks):
        if not chunk.packed:
            width = count = 0
            taken += start
        before, width, count = width * count, max(width, chunk.tokens), count + 1
        taken += (width * count - before) * each
        assert at == 0 or taken <= 0.65 * policy.token_gap - costs.decode_step + 1e-9


def test_a_request_of_many_prompts_lets_others_pass_between_them() -> None:
    """Sixty texts to embed, and then somebody asks something: it waits for one of them. B61."""
    texts = tuple(PendingPrompt(at, 400, NOW, at, group="texts") for at in range(60))
    chat = PendingPrompt(60, 400, NOW, 60, group="chat")
    costs = Costs(0.05, 0.0008)
    plan = schedule(State(NOW, prefilling=(*texts, chat), costs=costs), Policy(max_batch=64))
    assert [chunk.job for chunk in plan.chunks][:3] == [0, 60, 1]
    alone = tuple(replace(job, group=str(job.id)) for job in texts)
    plan = schedule(State(NOW, prefilling=(*alone, chat), costs=costs), Policy(max_batch=64))
    assert [chunk.job for chunk in plan.chunks][:3] == [0, 1, 2]


@given(
    seconds=st.floats(0.01, 2.0),
    each=st.floats(1e-5, 1e-2),
    start=st.floats(0.0, 0.1),
    reach=st.floats(0.0, 1e-5),
    done=st.integers(0, 20_000),
    most=st.sampled_from([512, 8192]),
)
def test_a_piece_takes_as_long_as_it_may_and_no_longer(
    seconds: float, each: float, start: float, reach: float, done: int, most: int
) -> None:
    """Whatever the limit on its tokens, and although later tokens cost more than the first. B61."""
    costs = Costs(0.0, each, start, reach)
    tokens = _affordable(seconds, costs, most, done)
    assert 0 <= tokens <= most
    assert not tokens or costs.prompt(tokens, done) <= seconds * (1 + 1e-9)
    assert tokens == most or costs.prompt(tokens + 1, done) > seconds * (1 - 1e-9)


def test_what_a_step_will_take_counts_what_its_prompts_look_back_at() -> None:
    """Who watches for a hang would have too little patience with a long context."""
    costs = Costs(decode_step=0.01, prefill_token=1e-4, prefill_pass=0.005, prefill_reach=1e-6)
    job = PendingPrompt(1, 100, 0.0, 1, done=50_000)
    plan = schedule(State(now=0.0, prefilling=(job,), costs=costs), Policy())
    [chunk] = plan.chunks
    work = Work.of(plan, 0, costs)
    assert work.seconds == pytest.approx(costs.prompt(chunk.tokens, 50_000))
    assert work.seconds > 100 * costs.prefill_token + costs.prefill_pass


def test_a_prompt_by_itself_runs_in_one_large_piece() -> None:
    """As a bare loop at its best would; no longer than a newcomer may wait, and less beside others,
    who decode as soon as the step with their prompts has ended.
    """
    fast = Costs(decode_step=0.01, prefill_token=2.5e-5, prefill_pass=0.01)
    job, other = (PendingPrompt(id, 16_000, NOW, id, group=str(id)) for id in (1, 2))

    def tokens(*jobs: PendingPrompt, costs: Costs = fast, decoding: int = 0) -> int:
        state = State(NOW, rows(decoding, 100), prefilling=jobs, costs=costs)
        return sum(chunk.tokens for chunk in schedule(state, Policy(decode_waits=True)).chunks)

    assert tokens(job) == 16_000
    assert tokens(job, other) == 8192
    slow = fast._replace(prefill_token=2e-4)
    assert 4096 <= tokens(job, costs=slow) < 5000  # half of `start_wait`
    quick = fast._replace(prefill_token=1e-6)
    assert (tokens(job, costs=quick), tokens(job, costs=quick, decoding=1)) == (16_000, 8192)
