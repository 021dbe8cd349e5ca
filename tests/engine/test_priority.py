"""Classes of work: who goes first, what the others still get, and what live streams feel of it."""

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.engine.plan import Costs, PendingPrompt, Plan, Policy, State
from bushel.engine.scheduler import BACKGROUND_SHARE, schedule
from bushel.engine.slot_sharing import LIVE_PER_BACKGROUND
from tests.depth import one_in, some

from .scheduler_simulation import OVERHEAD, Arrival, Schedule, Trace, simulate
from .test_scheduler import complaints, measured, policies
from .test_slot_sharing import POLICY, SECONDS, STEP, fitting, waited, within

LOW, BATCH = {"priority": 7}, {"background": True}
KINDS = pytest.mark.parametrize("kind", [LOW, BATCH], ids=["low", "background"])


def waited_for(trace: Trace, arrival: Arrival) -> float:
    """From its arrival to its first token; for ever, if it got none."""
    return next((seconds for it, seconds in trace.first if it == arrival), math.inf)


# -- who goes first --------------------------------------------------------------------------------


def test_of_those_that_wait_the_lowest_value_goes_first() -> None:
    """A request with a lower priority value overtakes those that came before it. B82."""
    policy = replace(POLICY, max_batch=1)
    waiting = [Arrival(0.1 + at / 100, 5, 5, priority=at) for at in (3, 0, -2, 1)]
    trace = simulate([Arrival(0.0, 5, 50), *waiting], policy, SECONDS)
    assert [it.priority for it, _ in trace.first] == [0, -2, 0, 1, 3]


def test_prompts_that_run_are_served_by_their_priority_too() -> None:
    prompts = [PendingPrompt(at, 1000, 9.9, at, priority=-at, group=str(at)) for at in range(3)]
    plan = schedule(State(10.0, prefilling=tuple(prompts), costs=SECONDS), POLICY)
    assert plan.chunks[0].job == 2


def test_a_row_of_a_lower_class_yields_to_who_has_waited_for_start_wait() -> None:
    """Where every slot is taken by long replies, urgent work need not wait for their ends. B82."""
    flood = [Arrival(0.0, 5, 600, priority=1) for _ in range(POLICY.max_batch)]
    urgent = Arrival(2.0, 5, 5)
    trace = simulate([*flood, urgent], POLICY, SECONDS)
    assert trace.finished
    assert waited_for(trace, urgent) <= POLICY.start_wait + STEP
    assert sum(trace.yields.values()) == 1
    alike = simulate([replace(it, priority=0) for it in (*flood, urgent)], POLICY, SECONDS)
    assert waited_for(alike, urgent) > 2 * POLICY.start_wait + STEP  # control


def test_a_priority_is_no_advantage_over_another_owner() -> None:
    """One key's low values do not keep another key from its share. B82, B67."""
    flood = [Arrival(0.0, 50, 600, owner="a", priority=-9) for _ in range(16)]
    later = [Arrival(2.0 + at, 20, 10, owner="b", priority=9) for at in range(3)]
    trace = simulate([*flood, *later], POLICY, SECONDS)
    assert waited(trace, "b") <= 2 * POLICY.start_wait + STEP


# -- nobody starves --------------------------------------------------------------------------------

OLDEST = 3.0


def impatient(state: State, policy: Policy) -> Plan:
    """The control: whoever is of a lower class waits until there is nobody else."""
    return schedule(state, replace(policy, oldest=math.inf))


def flooded(slots: int, reply: int, kind: dict[str, object], plan: Schedule = schedule) -> float:
    """How long a request of a lower class waits where others always wait, too."""
    every = (reply + 1) * (SECONDS.decode_step + OVERHEAD) / slots  # as they are answered
    flood = [Arrival(0.9 * at * every, 5, reply) for at in range(int(12 / every))]
    low = Arrival(1.0, 5, 5, **kind)  # type: ignore[arg-type]
    policy = replace(POLICY, max_batch=slots, oldest=OLDEST)
    return waited_for(simulate([*flood, low], policy, SECONDS, plan), low)


@KINDS
@settings(derandomize=True, max_examples=8, deadline=None)
@given(slots=st.integers(1, 4), reply=st.integers(5, 60))
def test_the_lowest_class_is_served_while_others_wait_all_the_time(
    kind: dict[str, object], slots: int, reply: int
) -> None:
    """However much goes before it, work of any class gets a slot after a while. B82."""
    ends = (reply + 1) * (SECONDS.decode_step + OVERHEAD)  # until a slot is free
    assert flooded(slots, reply, kind) <= OLDEST + ends + 5 * STEP


@KINDS
def test_control_without_that_rule_it_waits_for_as_long_as_others_come(
    kind: dict[str, object],
) -> None:
    assert flooded(2, 20, kind, impatient) > 3 * OLDEST


classes = st.lists(
    st.builds(
        Arrival,
        at=st.floats(0, 10),
        prompt=st.one_of(st.integers(0, 64), st.integers(0, 1000)),
        reply=st.integers(1, 60),
        choices=st.integers(1, 3),
        priority=st.integers(-2, 2),
        background=st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(derandomize=True, max_examples=some(50), deadline=None)
@given(classes, policies, measured)
def test_with_any_classes_the_bounds_hold_and_everyone_finishes(
    traffic: list[Arrival], policy: Policy, costs: Costs
) -> None:
    """Streams do not stall, prompts that run get on, and every request is answered. B61, B82."""
    assert complaints(simulate(traffic, policy, costs), policy, costs) == set()


@settings(derandomize=True, max_examples=12, deadline=None)
@given(classes, policies, measured, st.integers(2, 6))
def test_with_any_classes_everyone_finishes_where_memory_is_short(
    traffic: list[Arrival], policy: Policy, costs: Costs, rows: int
) -> None:
    memory = fitting(rows, 1060)
    trace = simulate(traffic, policy, costs, within(memory), memory)
    assert trace.finished
    assert trace.most_rows <= policy.max_batch


# -- live streams beside a batch -------------------------------------------------------------------

MANY = replace(POLICY, max_batch=32, prefill_chunk=512)
ROWS = [Arrival(0.0, 100, 40, **BATCH) for _ in range(80)]  # type: ignore[arg-type]


def beside(batch: list[Arrival], streams: int) -> tuple[Trace, list[tuple[int, int]]]:
    """What a batch and streams do to each other, and the rows of both in each step of both."""
    seen: list[tuple[int, int]] = []

    def watched(state: State, policy: Policy) -> Plan:
        plan = schedule(state, policy)
        rows = [row for row in state.running if row.id not in plan.preempt]
        batched = sum(row.background for row in rows)
        if len(rows) > batched:
            seen.append((len(rows) - batched, batched))
        return plan

    live = [Arrival(2.0, 30, 500) for _ in range(streams)]
    return simulate([*batch, *live], MANY, SECONDS, watched), seen


@pytest.mark.parametrize("streams", one_in(3, [1, 8, 20]))
def test_beside_live_streams_few_rows_of_a_batch_decode(streams: int) -> None:
    """A batch has all slots while it is alone, and steps aside when somebody comes. B82."""
    trace, seen = beside(ROWS, streams)
    assert trace.finished
    assert trace.most_rows == MANY.max_batch
    assert all(batched <= max(1, live // LIVE_PER_BACKGROUND) for live, batched in seen[2:])
    assert any(batched for _, batched in seen[2:])


def test_streams_hardly_feel_the_prompts_of_a_batch() -> None:
    """Their tokens come within a quarter of the time they take alone, or nearly so, and the batch
    gets on meanwhile. B82.
    """
    alone, _ = beside([], 8)
    trace, _ = beside(ROWS, 8)
    assert statistics.median(trace.live_gaps) <= 1.25 * statistics.median(alone.live_gaps)
    assert max(trace.live_gaps) <= MANY.token_gap + OVERHEAD
    assert sum(trace.live_gaps) <= (1.25 + BACKGROUND_SHARE) * sum(alone.live_gaps)
    ended = [at for it, at in trace.ended if it.background]
    during = [at for at in ended if 3.0 < at < max(at for it, at in trace.ended if it.reply == 500)]
    assert len(during) >= 5


def test_a_live_request_does_not_wait_for_the_batch() -> None:
    """Every slot is a batch's, and a newcomer still gets its first token at once. B82."""
    live = Arrival(2.0, 30, 5)
    long = [replace(it, reply=400) for it in ROWS[:64]]
    trace = simulate([*long, live], MANY, SECONDS)
    assert trace.finished
    assert waited_for(trace, live) <= 3 * STEP
    patient = simulate([*(replace(it, background=False) for it in long), live], MANY, SECONDS)
    assert waited_for(patient, live) > POLICY.start_wait  # control


def test_a_batch_does_not_come_and_go_with_every_request() -> None:
    """Where somebody asks now and then, it steps aside once and not for each of them. B82."""
    long = [replace(it, reply=400) for it in ROWS[:32]]
    now_and_then = [Arrival(4.0 + at / 2, 30, 5) for at in range(10)]

    def forgetful(state: State, policy: Policy) -> Plan:
        return schedule(replace(state, served=state.served._replace(live=-math.inf)), policy)

    trace = simulate([*long, *now_and_then], MANY, SECONDS)
    control = simulate([*long, *now_and_then], MANY, SECONDS, forgetful)
    assert trace.finished
    assert max(trace.yields.values()) <= 2
    assert max(control.yields.values()) > 4
