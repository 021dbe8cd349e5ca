"""Owners and requests share the slots: simulated traffic, with a scheduler that knows no owners
as the control (B67).
"""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.core.footprint import Footprint, LayerFootprint, Memory
from bushel.engine.plan import Costs, PendingPrompt, Plan, Policy, Row, Served, State
from bushel.engine.scheduler import DECODE_WORTH, schedule
from tests.depth import often, one_in, some

from .scheduler_simulation import OVERHEAD, Arrival, Schedule, Trace, simulate
from .test_scheduler import measured, policies

POLICY = Policy(max_batch=8, prefill_chunk=64, least_chunk=16, token_gap=0.1, start_wait=1.0)
SECONDS = Costs(decode_step=0.01, prefill_token=0.0005)
STEP = 0.1  # seconds; no step of these takes longer


def known_to_nobody(state: State, policy: Policy) -> Plan:
    """The control: first come, first served, whoever they are."""

    def same(them: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(it._replace(owner="", group="") for it in them)

    def jobs(them: tuple[PendingPrompt, ...]) -> tuple[PendingPrompt, ...]:
        return tuple(replace(it, owner="", group="") for it in them)

    lists = {"running": same(state.running), "ready": same(state.ready)}
    rest = {"prefilling": jobs(state.prefilling), "waiting": jobs(state.waiting)}
    return schedule(replace(state, **lists, **rest, served=Served({}, {}, {})), policy)  # type: ignore[arg-type]


def waited(trace: Trace, owner: str) -> float:
    """The longest that a request of theirs had to wait for its first token."""
    assert trace.finished
    return max(seconds for it, seconds in trace.first if it.owner == owner)


LATER = [Arrival(2.0 + at, 20, 10, owner="b") for at in range(3)]
MANY_CHOICES = [Arrival(0.0, 50, 600, choices=16, owner="a")]
MANY_PROMPTS = [Arrival(0.0, 50, 600, owner="a", group="one") for _ in range(16)]
MANY_REQUESTS = [Arrival(0.0, 50, 600, owner="a") for _ in range(16)]
LONG_PROMPTS = [Arrival(0.0, 4000, 10, owner="a") for _ in range(16)]
FLOODS = {
    "choices": MANY_CHOICES,
    "prompts of one request": MANY_PROMPTS,
    "requests": MANY_REQUESTS,
    "long prompts": LONG_PROMPTS,
}


@pytest.mark.parametrize("flood", one_in(2, FLOODS))
def test_another_owner_waits_for_two_start_waits_at_most(flood: str) -> None:
    """Whatever one key floods the server with, another is served soon. B67."""
    arrivals = [*FLOODS[flood], *LATER]
    trace = simulate(arrivals, POLICY, SECONDS)
    assert waited(trace, "b") <= 2 * POLICY.start_wait + STEP
    assert sum(trace.yields.values()) <= len(LATER)  # one makes way for each, and no more
    control = simulate(arrivals, POLICY, SECONDS, known_to_nobody)
    assert waited(control, "b") > 4 * POLICY.start_wait


def of_one_owner(state: State, policy: Policy) -> Plan:
    """The scheduler where everyone has the same key."""
    rows = [tuple(it._replace(owner="") for it in them) for them in (state.running, state.ready)]
    jobs = [
        tuple(replace(it, owner="") for it in them) for them in (state.prefilling, state.waiting)
    ]
    return schedule(State(state.now, *rows, *jobs, *(state.costs, None, state.served)), policy)


@pytest.mark.parametrize("flood", [MANY_CHOICES, MANY_PROMPTS], ids=["choices", "prompts"])
def test_another_request_of_the_same_owner_waits_no_longer(flood: list[Arrival]) -> None:
    """A key's short request is served soon beside its own flood. B67."""
    trace = simulate([*flood, *LATER], POLICY, SECONDS, of_one_owner)
    assert waited(trace, "b") <= 2 * POLICY.start_wait + STEP
    assert sum(trace.yields.values()) <= len(LATER)


@pytest.mark.parametrize("slots", often([1, 2, 3], 2))
def test_with_few_slots_owners_take_turns(slots: int) -> None:
    """Nobody has two to give one away; who was served longest ago is next. B67."""
    flood = [Arrival(0.0, 5, 50, owner=owner) for _ in range(20) for owner in "acd"[:slots]]
    arrivals = [*flood, Arrival(1.0, 5, 5, owner="b")]
    policy = replace(POLICY, max_batch=slots)
    reply = 51 * SECONDS.decode_step + STEP
    assert waited(simulate(arrivals, policy, SECONDS), "b") <= 2 * reply
    control = simulate(arrivals, policy, SECONDS, known_to_nobody)
    assert waited(control, "b") > 4 * reply


@pytest.mark.parametrize("every", [0.08, 0.09, 0.1, 0.25])
def test_a_stream_of_short_prompts_is_served_beside_a_long_prompt_of_another(every: float) -> None:
    """Each owner has the next step in turn, however often either is admitted (B61, B67)."""
    short = [Arrival(0.1 + every * at, 20, 5, owner="b") for at in range(40)]
    trace = simulate([Arrival(0.0, 20_000, 10, owner="a"), *short], POLICY, SECONDS)
    # The step that runs, the other's turn and its own; then decoding is due soon.
    soon = DECODE_WORTH * SECONDS.decode_step
    assert waited(trace, "b") <= 4 * (trace.longest_step + OVERHEAD) + soon
    alone = simulate([Arrival(0.0, 20_000, 10, owner="a")], POLICY, SECONDS)
    assert waited(trace, "a") <= 2 * waited(alone, "a")


def test_a_newcomer_does_not_cost_its_owner_the_turn() -> None:
    """Admission is no progress: whose prompts ran longest ago is next."""
    long = PendingPrompt(1, 50_000, 9.99, 1, owner="a", group="a")
    short = PendingPrompt(2, 100, 7.0, 2, owner="b", group="b", since=7.0)
    state = State(10.0, prefilling=(long, short), served=Served({}, {}, {"a": 9.99, "b": 6.5}))
    newcomer = PendingPrompt(3, 100, 9.8, 3, owner="b", group="c")
    for waiting in ((), (newcomer,)):
        plan = schedule(replace(state, waiting=waiting), POLICY)
        assert plan.admit == tuple(it.id for it in waiting)
        assert plan.chunks[0].job == short.id


def test_two_owners_who_both_want_everything_get_half_each() -> None:
    arrivals = [Arrival(0.0, 20, 100, owner="a") for _ in range(40)]
    arrivals += [Arrival(0.5, 20, 100, owner="b") for _ in range(16)]

    def ends(plan: Schedule) -> float:
        return max(
            at for it, at in simulate(arrivals, POLICY, SECONDS, plan).ended if it.owner == "b"
        )

    # 1,600 tokens in four of eight rows take 400 steps; in turn they would come after 4,000.
    assert ends(schedule) <= 0.5 + 1.3 * 400 * SECONDS.decode_step + POLICY.start_wait
    assert ends(known_to_nobody) > 6.0


def test_single_requests_of_one_owner_are_served_in_order_and_never_yield() -> None:
    arrivals = [Arrival(0.01 * at, 20, 300) for at in range(24)]
    trace = simulate(arrivals, POLICY, SECONDS)
    assert trace.finished
    assert not trace.yields
    control = simulate(arrivals, POLICY, SECONDS, known_to_nobody)
    assert trace.first == control.first


# -- memory --------------------------------------------------------------------------------

SIZES = Footprint(0, 0, (LayerFootprint(per_token=1 << 10, buffers=1),), 0, 0, 0)


def fitting(rows: int, length: int) -> Memory:
    return Memory(SIZES, SIZES.peak(rows, length, 16), 1 << 62)


def within(limit: Memory) -> Callable[[State, Policy], Plan]:
    """The scheduler, held to the limit after every plan."""

    def plan(state: State, policy: Policy) -> Plan:
        assert state.memory is not None
        assert state.memory.fits(0)
        return schedule(state, policy)

    return plan


def test_a_request_that_takes_all_memory_makes_way_in_memory_too() -> None:
    """Another key is served soon, though no memory was left. B63, B67."""
    flood = [Arrival(0.0, 200, 600, choices=16, owner="a")]
    arrivals = [*flood, *(replace(it, prompt=100) for it in LATER)]
    memory = fitting(5, 800)
    trace = simulate(arrivals, POLICY, SECONDS, within(memory), memory)
    assert waited(trace, "b") <= 2 * POLICY.start_wait + STEP
    control = simulate(arrivals, POLICY, SECONDS, known_to_nobody, memory)
    assert waited(control, "b") > 4 * POLICY.start_wait


def by_turns(state: State, policy: Policy) -> Plan:
    """The control: whoever lost its state most often is taken for the oldest, so that all lose it
    in turn."""

    def rows(them: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(it._replace(order=it.order - 10_000 * it.yields) for it in them)

    def jobs(them: tuple[PendingPrompt, ...]) -> tuple[PendingPrompt, ...]:
        return tuple(replace(it, order=it.order - 10_000 * it.yields) for it in them)

    lists = {"running": rows(state.running), "ready": rows(state.ready)}
    rest = {"prefilling": jobs(state.prefilling), "waiting": jobs(state.waiting)}
    return schedule(replace(state, **lists, **rest), policy)  # type: ignore[arg-type]


def beside_rare_requests(
    count: int, prompt: int, gap: float, plan: Schedule = schedule
) -> tuple[Trace, list[bool]]:
    """Long requests that fill the memory, and short ones of another owner, one each gap; returns
    whether each of the long ones ended in time: one after the other, in order of arrival."""
    long = [Arrival(0.0, prompt + at, 300, owner="a") for at in range(count)]
    chunks = prompt // POLICY.prefill_chunk + 1
    # Every step decodes, and every second one at least runs a chunk of its owner.
    each = (2 * chunks + long[0].reply) * (STEP / 2)
    coming = range(int(3 * count * each / gap))
    short = [Arrival(1.0 + gap * at, 20, 10, owner="b") for at in coming]
    memory = fitting(count, prompt + count + long[0].reply)
    trace = simulate([*long, *short], POLICY, SECONDS, plan, memory)
    assert trace.longest_step + OVERHEAD <= STEP / 2
    ends = {it: at for it, at in trace.ended if it.owner == "a"}
    return trace, [ends.get(it, math.inf) <= at * each for at, it in enumerate(long, 1)]


@pytest.mark.long
@settings(derandomize=True, max_examples=25)
@given(st.integers(2, 4), st.integers(4_000, 20_000), st.floats(1.2, 15.0))
def test_rare_requests_do_not_keep_long_ones_of_another_owner_from_ending_where_memory_lacks(
    count: int, prompt: int, gap: float
) -> None:
    """Someone loses its state to each of them; they wait no longer than with enough (B63, B67)."""
    trace, in_time = beside_rare_requests(count, prompt, gap)
    assert all(in_time)
    assert waited(trace, "b") <= 2 * POLICY.start_wait + STEP


@pytest.mark.long
def test_control_long_requests_that_lose_their_state_in_turn_do_not_end_in_time() -> None:
    _, in_time = beside_rare_requests(2, 20_000, 3.0, by_turns)
    assert not any(in_time)


def test_where_memory_lacks_the_youngest_loses_its_state_and_never_the_oldest() -> None:
    """However often it did before; nor does the oldest while it waits for a slot."""
    first, second, third = (Row(at, at, 0.0, "a", str(at), 800, 3 - at) for at in range(3))
    claim = PendingPrompt(9, 20, 98.0, 9, length=800, owner="b", group="b")
    memory = fitting(3, 800).with_rows(3, 800)
    state = State(100.0, (first, second, third), waiting=(claim,), memory=memory)
    often = third._replace(yields=7)
    plan = schedule(replace(state, running=(first, second, often)), POLICY)
    assert plan.preempt == plan.drop == (third.id,)
    fresh = [it._replace(since=99.5) for it in (second, third)]
    assert schedule(replace(state, running=(first, *fresh)), POLICY) == Plan(decode=True)
    aside = first._replace(slot=False)
    full = replace(POLICY, max_batch=2)
    plan = schedule(replace(state, running=(second, third), ready=(aside,)), full)
    assert plan.preempt == plan.drop == (third.id,)


BIG = Arrival(1.0, 1900, 100, owner="b")


def test_a_big_request_among_small_ones_is_served_and_does_not_hold_them_up() -> None:
    """Small ones pass it until it is old; then it is next, whatever else arrives. B67."""
    policy = replace(POLICY, oldest=3.0)
    memory = fitting(1, 2000)
    small = [Arrival(0.05 * at, 20, 40) for at in range(200)]
    trace = simulate([*small, BIG], policy, SECONDS, within(memory), memory)
    prompt = BIG.prompt * SECONDS.prefill_token
    assert waited(trace, "b") <= policy.oldest + 40 * SECONDS.decode_step + prompt + 1.0
    passing = [it for it, at in trace.ended if BIG.at < at < BIG.at + policy.oldest]
    assert len(passing) > 20


# -- any traffic ---------------------------------------------------------------------------

arrivals = st.lists(
    st.builds(
        Arrival,
        at=st.floats(0, 10),
        prompt=st.one_of(st.integers(0, 64), st.integers(0, 1000)),
        reply=st.integers(1, 60),
        choices=st.integers(1, 6),
        owner=st.sampled_from("aab"),
        group=st.sampled_from(["", "", "g"]),
    ),
    min_size=1,
    max_size=12,
)


@settings(derandomize=True, max_examples=some(60))
@given(arrivals, policies, measured, st.one_of(st.none(), st.integers(2, 6)))
def test_everyone_finishes_within_slots_and_memory_and_nobody_yields_often(
    traffic: list[Arrival], policy: Policy, costs: Costs, rows: int | None
) -> None:
    """No traffic starves a reply or makes it yield again and again. B63, B67."""
    traffic = [replace(it, group=it.group and it.group + it.owner) for it in traffic]
    memory = None if rows is None else fitting(rows, 1060)
    trace = simulate(traffic, policy, costs, within(memory) if memory else schedule, memory)
    assert trace.finished
    assert trace.most_rows <= policy.max_batch
    turns = trace.end / policy.start_wait + 1
    assert max(trace.yields.values(), default=0) <= turns


def test_control_a_scheduler_that_preempts_at_will_is_noticed() -> None:
    def restless(state: State, policy: Policy) -> Plan:
        plan = schedule(state, policy)
        rows = tuple(row.id for row in state.running if row.since < state.now)[:1]
        return replace(plan, preempt=plan.preempt or rows)

    trace = simulate(MANY_CHOICES, POLICY, SECONDS, restless)
    assert max(trace.yields.values()) > trace.end / POLICY.start_wait + 1
