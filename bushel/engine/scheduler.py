"""What to do next: a pure function from a small frozen state to a plan.

No MLX, no clock, no randomness: the clock and the measured costs are part of the state, so
that the same state gives the same plan on every rank and in every test.

One engine step is one decode step of all rows and up to a budget of prefill tokens, spent on
one prompt after the other:

    step     | decode | prefill ....... |   | decode | prefill ....... |
    stream          token  <── gap ───────────────> token

Two bounds hold (B61):
  token_gap   decode time + prefill time stays under it, as far as `least_chunk` tokens allow
  start_wait  a prompt that has gone without progress for so long is served before younger ones
              of its owner, the longest-waiting first; so its wait is start_wait plus one step
              for each prompt that is overdue before it. Owners take turns
Neither prefill nor decode can starve: both are in every plan that has work of both sorts.

There are `max_batch` slots. A row that decodes has one, and so has a prompt from its admission
on, for its first row; its other rows, and those that were preempted, wait for one like prompts:

    waiting ──────> prefilling ──> ready, with a slot ───> running
       ^   admit        │          ready, without ──────>     │
       └── preempt ─────┘                ^      join          │
       └──── drop ────── its state ──────┴───── preempt ──────┘

Slots are shared (B67). Next is whose owner holds the fewest, then whose request (`group`) does;
among equals, who was served longest ago, then the order of the policy. Whose request holds none
and has waited for start_wait takes one from an owner with at least two more, or from a request
of its own owner with more than a quarter of all. The row that yields has run for start_wait, so
that nobody yields often; it keeps its state, unless memory is what is lacking. Then the youngest
yields, and never the oldest of its owner's that hold state: that one runs to its end.

Memory is promised with a slot, for prompt and reply at their longest. Who does not fit lets others
pass until he is `oldest`; from then on nobody takes memory before him, but rows whose request has
no other, since they hold some that only they can give back.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bushel.core.footprint import Memory
    from bushel.core.options import Order


@dataclass(frozen=True)
class Policy:
    max_batch: int = 32
    prefill_chunk: int = 512
    least_chunk: int = 16
    token_gap: float = 0.5  # seconds between two tokens of a running stream
    start_wait: float = 2.0  # seconds without progress of an admitted prompt, or without a slot
    order: Order = "arrival"  # of admission
    oldest: float = 10.0  # seconds in the queue after which "shortest" yields to arrival

    @property
    def share(self) -> int:
        """Slots of one request from which others of the same owner may take."""
        return max(2, self.max_batch // 4 + 1)


class Costs(NamedTuple):
    """Measured seconds; zero until something has been measured."""

    decode_step: float = 0.0
    prefill_token: float = 0.0
    prefill_chunk: float = 0.0  # beside its tokens


_UNKNOWN = Costs()
_BEFORE = float("-inf")  # any clock


class Row(NamedTuple):
    """A choice of a request whose prompt has run."""

    id: int  # no job has the same
    order: int = 0  # of arrival
    since: float = 0.0  # when it got its slot, or began to wait for one
    owner: str = ""
    group: str = ""
    length: int = 0  # of prompt and reply at their longest
    yields: int = 0  # how often it was preempted
    slot: bool = True
    state: bool = True  # it holds some of its own; false: it will be given a copy


@dataclass(frozen=True)
class PendingPrompt:
    """A prompt that waits for, or is in the middle of, its prefill."""

    id: int
    remaining: int  # tokens to run before it can decode
    last_served: float  # when it got its last chunk, or was admitted; while it waits, arrived
    order: int  # of arrival
    done: int = 0  # tokens it has run
    length: int = 0  # of prompt and reply at their longest
    rows: int = 1  # choices, each of which will be a row
    owner: str = ""
    group: str = ""
    since: float = 0.0  # when it was admitted
    yields: int = 0
    state: bool = False  # it holds some while it waits


class Served(NamedTuple):
    """When owners and groups last got a slot; nothing of those who are not there."""

    owners: Mapping[str, float]
    groups: Mapping[str, float]
    chunks: Mapping[str, float]  # when owners last ran one


_NEVER = Served({}, {}, {})


class Arrivals(NamedTuple):
    """What a step finds that came from outside the engine since the step before.

    A step is a function of these and of the engine's own state: nothing that it does after them
    looks at a clock, a disk or a compiler.
    """

    now: float
    read: tuple[int, ...] = ()  # waiting prompts whose files have been read
    compiled: tuple[int, ...] = ()  # waiting prompts whose grammars have been compiled
    slow: tuple[int, ...] = ()  # running rows whose constraints take too much time


@dataclass(frozen=True)
class State:
    now: float
    running: tuple[Row, ...] = ()  # in the decode batch
    ready: tuple[Row, ...] = ()  # with a slot or without
    prefilling: tuple[PendingPrompt, ...] = ()
    waiting: tuple[PendingPrompt, ...] = ()  # in order of arrival
    costs: Costs = _UNKNOWN
    memory: Memory | None = None  # with what is held or promised so far; None: enough
    served: Served = _NEVER


@dataclass(frozen=True)
class Chunk:
    job: int
    tokens: int


@dataclass(frozen=True)
class Plan:
    """Carried out in this order."""

    preempt: tuple[int, ...] = ()  # running rows and prefilling jobs that lose their slot
    drop: tuple[int, ...] = ()  # of these and of those without a slot: who lose their state too
    admit: tuple[int, ...] = ()  # waiting jobs that start now
    join: tuple[int, ...] = ()  # ready rows that decode from now on
    chunks: tuple[Chunk, ...] = ()  # at most one per job
    decode: bool = False


class Work(NamedTuple):
    """What a step has to do, for whoever wonders why it takes so long."""

    seconds: float = 0.0  # predicted
    prefill: bool = False
    rows: int = 0  # that decode

    @classmethod
    def of(cls, plan: Plan, running: int, costs: Costs) -> Work:
        rows = running + len(plan.join)
        seconds = costs.decode_step if rows else 0.0
        if not plan.chunks:
            return cls(seconds, False, rows)
        tokens = sum(chunk.tokens for chunk in plan.chunks)
        seconds += tokens * costs.prefill_token + len(plan.chunks) * costs.prefill_chunk
        return cls(seconds, tokens > 0, rows)


def schedule(state: State, policy: Policy) -> Plan:
    with_slot = [row for row in state.ready if row.slot]
    join = with_slot[: max(0, policy.max_batch - len(state.running))]
    slots = _Slots(state, policy)
    slots.hand_out()
    slots.take_back()
    join += slots.joining
    gone = {victim.id for victim in slots.preempted}
    prefilling = [job for job in state.prefilling if job.id not in gone]
    running = sum(row.id not in gone for row in state.running) + len(join)
    # Time in the queue does not count, or every newcomer would overtake who is being served.
    started = [replace(job, last_served=state.now) for job in slots.admitted]
    chunks = _chunks(
        _by_urgency([*prefilling, *started], state, policy),
        _seconds_for_prompts(running, state.costs, policy),
        state.costs,
        slots.memory,
        policy,
    )
    return Plan(
        preempt=tuple(victim.id for victim in slots.preempted),
        drop=tuple(victim.id for victim in slots.dropped),
        admit=tuple(job.id for job in slots.admitted),
        join=tuple(row.id for row in join),
        chunks=chunks,
        decode=running > 0,
    )


# -- slots ---------------------------------------------------------------------------------

Claim = Row | PendingPrompt  # of a slot: a row without one, or a job that waits


@dataclass
class _Slots:
    """Who has a slot, and who gets one, while a plan is made."""

    state: State
    policy: Policy
    owners: Counter[str] = field(default_factory=Counter)  # slots that they hold
    groups: Counter[str] = field(default_factory=Counter)
    admitted: list[PendingPrompt] = field(default_factory=list)
    joining: list[Row] = field(default_factory=list)
    preempted: list[Claim] = field(default_factory=list)
    dropped: list[Claim] = field(default_factory=list)

    def __post_init__(self) -> None:
        state = self.state
        with_slot = [row for row in state.ready if row.slot]
        self.holders: list[Claim] = [*state.running, *state.prefilling]
        self.free = self.policy.max_batch - len(self.holders) - len(with_slot)
        self.memory = state.memory
        self.claims: list[Claim] = [row for row in state.ready if not row.slot]
        self.claims += state.waiting
        if self.claims:
            held = (*self.holders, *with_slot)
            self.owners.update(holder.owner for holder in held)
            self.groups.update(holder.group for holder in held)

    def hand_out(self) -> None:
        """Give away the free slots."""
        if self.free <= 0 or not self.claims:
            return
        given = set[int]()
        behind = False  # someone old who does not fit
        for claim in self._in_turn(self.claims):
            if self._may_pass(claim, behind) and self._fits(claim):
                self._give(claim)
                given.add(claim.id)
                if self.free <= 0:
                    break
            else:
                behind = behind or self._is_old(claim)
        self.claims = [waiter for waiter in self.claims if waiter.id not in given]

    def take_back(self) -> None:
        """Make way for those who hold nothing and have waited for too long."""
        late = self.state.now - self.policy.start_wait
        urgent = [waiter for waiter in self.claims if _waits_since(waiter) <= late]
        urgent = [waiter for waiter in urgent if not self.groups[waiter.group]]
        if not self._contested({waiter.owner for waiter in urgent}):
            return
        hopeless, behind = set[str](), False
        for claim in self._in_turn(urgent):
            if claim.owner in hopeless or self.groups[claim.group]:
                continue
            if self._may_pass(claim, behind) and self._make_way(claim):
                self._give(claim)
            else:
                hopeless.add(claim.owner)
                behind = behind or self._is_old(claim)

    def _may_pass(self, claim: Claim, behind: bool) -> bool:
        """Whether it may take memory although someone old, who does not fit, comes before it."""
        alone = isinstance(claim, Row) and not self.groups[claim.group]
        return alone or not behind or not _need(claim)

    def _is_old(self, claim: Claim) -> bool:
        return self.state.now - _waits_since(claim) >= self.policy.oldest

    def _contested(self, owners: set[str]) -> bool:
        """Whether any of them may take from someone; most times nobody may."""
        if not owners or not self.owners:
            return False
        least = min(self.owners[owner] for owner in owners)
        uneven = max(self.owners.values()) >= least + 2 and len(owners | set(self.owners)) > 1
        idle = self.memory is not None and bool(self._idle())
        return uneven or idle or max(self.groups.values()) >= self.policy.share

    def _in_turn(self, claims: Sequence[Claim]) -> Iterator[Claim]:
        """Who is next, and next; a slot given meanwhile counts."""
        owners, groups = {waiter.owner for waiter in claims}, {waiter.group for waiter in claims}
        if len(owners) == 1 and len(groups) == len(claims):
            yield from sorted(claims, key=self._place)  # no slot given changes their places
            return
        queues: dict[str, dict[str, deque[Claim]]] = defaultdict(lambda: defaultdict(deque))
        for claim in sorted(claims, key=self._rank):
            queues[claim.owner][claim.group].append(claim)

        def place(owner: str, group: str) -> _Place:
            return self._place(queues[owner][group][0])

        def turn(owner: str) -> _Place:
            rank = heaps[owner][0][2]
            return self.owners[owner], self.state.served.owners.get(owner, _BEFORE), rank, owner

        heaps = {
            owner: [place(owner, name) for name in by_group] for owner, by_group in queues.items()
        }
        for heap in heaps.values():
            heapq.heapify(heap)
        turns = [turn(owner) for owner in queues]
        heapq.heapify(turns)
        while turns:
            owner = heapq.heappop(turns)[3]
            group = heapq.heappop(heaps[owner])[3]
            yield queues[owner][group].popleft()
            if queues[owner][group]:
                heapq.heappush(heaps[owner], place(owner, group))
            if heaps[owner]:
                heapq.heappush(turns, turn(owner))

    def _place(self, claim: Claim) -> _Place:
        """Among its owner's."""
        group = claim.group
        served = self.state.served.groups.get(group, _BEFORE)
        return self.groups[group], served, self._rank(claim), group

    def _rank(self, claim: Claim) -> _Rank:
        if self.policy.order == "arrival":
            return False, 0, claim.order, claim.id
        old = self._is_old(claim)
        remaining = claim.remaining if isinstance(claim, PendingPrompt) and not old else 0
        return not old, remaining, claim.order, claim.id

    def _fits(self, claim: Claim) -> bool:
        if self.memory is None or not _need(claim):
            return True
        chunk = min(self.policy.least_chunk, self.policy.prefill_chunk)
        return self.memory.with_rows(_need(claim), claim.length).fits(chunk)

    def _give(self, claim: Claim) -> None:
        self._count(claim, 1)
        if self.memory is not None and _need(claim):
            self.memory = self.memory.with_rows(_need(claim), claim.length)
        if isinstance(claim, PendingPrompt):
            self.admitted.append(claim)
        else:
            self.joining.append(claim)

    def _make_way(self, claim: Claim) -> bool:
        """Take a slot, and memory if need be; nothing at all if that would not do."""
        counts = len(self.preempted), len(self.dropped), self.memory
        done = self.free > 0 or self._preempt(claim)
        while done and not self._fits(claim):
            done = self._drop(claim, counts[0]) or self._preempt(claim)
        if not done:
            for victim in self.preempted[counts[0] :]:
                self._count(victim, 1)
            del self.preempted[counts[0] :], self.dropped[counts[1] :]
            self.memory = counts[2]
        return done

    def _preempt(self, claim: Claim) -> bool:
        """Of whoever holds most, the youngest of those who yielded least.

        Where memory lacks, whoever yields loses its state. If they took turns at that, nobody
        would come further than the last time.
        """
        late = self.state.now - self.policy.start_wait
        able = [
            holder
            for holder in self.holders
            if holder.since <= late
            and holder not in self.preempted
            and self._yields_to(holder, claim)
        ]
        key = self._holds_most
        if not self._fits(claim):
            able, key = self._droppable(able), self._youngest
        if not able:
            return False
        victim = max(able, key=key)
        self.preempted.append(victim)
        self._count(victim, -1)
        return True

    def _yields_to(self, holder: Claim, claim: Claim) -> bool:
        if holder.owner != claim.owner:
            return self.owners[holder.owner] >= self.owners[claim.owner] + 2
        return self.groups[holder.group] >= self.policy.share

    def _holds_most(self, holder: Claim) -> tuple[int, ...]:
        slots = self.owners[holder.owner], self.groups[holder.group]
        return *slots, -holder.yields, holder.order, holder.id

    def _youngest(self, holder: Claim) -> tuple[int, ...]:
        """Of whoever holds most."""
        return self.owners[holder.owner], self.groups[holder.group], holder.order, holder.id

    def _droppable(self, holders: Iterable[Claim]) -> list[Claim]:
        """All but the oldest that holds state, of each owner: it runs to its end."""
        with_slot = (row for row in self.state.ready if row.slot)
        holding = (*self.holders, *with_slot, *self._idle())
        oldest: dict[str, tuple[int, int]] = {}
        for holder in holding:
            age = holder.order, holder.id
            oldest[holder.owner] = min(oldest.get(holder.owner, age), age)
        return [
            candidate
            for candidate in holders
            if (candidate.order, candidate.id) != oldest[candidate.owner]
        ]

    def _drop(self, claim: Claim, own: int) -> bool:
        """State of someone who does not run: now from `preempted[own:]`, or for longer."""
        taken = (*self.joining, *self.admitted, *self.dropped, claim)
        able = self._droppable(idle for idle in self._idle() if idle not in taken)
        able = able or self._droppable(
            holder for holder in self.preempted[own:] if holder not in taken
        )
        if not able or self.memory is None:
            return False
        victim = max(able, key=self._youngest)
        self.dropped.append(victim)
        self.memory = self.memory.without_rows(_held(victim))
        return True

    def _idle(self) -> list[Claim]:
        """Who holds state without a slot."""
        ready = [row for row in self.state.ready if row.state and not row.slot]
        return [*ready, *(job for job in self.state.waiting if job.state)]

    def _count(self, holder: Claim, change: int) -> None:
        """It has a slot more, or less."""
        self.free -= change
        self.owners[holder.owner] += change
        self.groups[holder.group] += change


_Rank = tuple[bool, int, int, int]
_Place = tuple[int, float, _Rank, str]


def _waits_since(claim: Claim) -> float:
    return claim.since if isinstance(claim, Row) else claim.last_served


def _held(claim: Claim) -> int:
    """Rows that its state takes: choices of one prompt share a copy until each has its own."""
    return 1 if isinstance(claim, Row) else min(claim.rows, 2)


def _need(claim: Claim) -> int:
    """Rows to promise to it with a slot."""
    return 0 if claim.state else _held(claim)


# -- prompts -------------------------------------------------------------------------------


def _by_urgency(jobs: Sequence[PendingPrompt], state: State, policy: Policy) -> list[PendingPrompt]:
    """Owners in turn; of an owner's, first come, first served, unless someone waited too long."""
    now, groups = state.now, dict[str, float]()
    for job in jobs:
        groups[job.group] = max(groups.get(job.group, _BEFORE), job.last_served)

    def urgency(job: PendingPrompt) -> tuple[float, bool, bool, float, int]:
        turn = state.served.chunks.get(job.owner, _BEFORE)
        overdue = now - job.last_served >= policy.start_wait
        forgotten = now - groups[job.group] >= policy.start_wait  # its whole request
        return turn, not forgotten, not overdue, job.last_served if overdue else 0.0, job.order

    return sorted(jobs, key=urgency)


def _seconds_for_prompts(running: int, costs: Costs, policy: Policy) -> float:
    """Seconds that the prompts of this step may take."""
    return policy.token_gap - costs.decode_step if running else float("inf")


def _chunks(
    jobs: list[PendingPrompt], seconds: float, costs: Costs, memory: Memory | None, policy: Policy
) -> tuple[Chunk, ...]:
    """Whole prompts while they fit; a piece of one only if it is worth a pass of its own.

    The first one is served in any case, with `least_chunk` tokens if need be.
    """
    chunks: list[Chunk] = []
    budget = policy.prefill_chunk
    for job in jobs:
        tokens = min(job.remaining, budget, _affordable(seconds, costs, budget))
        if not chunks:
            tokens = max(tokens, min(job.remaining, policy.least_chunk, policy.prefill_chunk))
        if memory is not None:
            tokens = memory.chunk(tokens, policy.least_chunk, job.done + tokens)
        if chunks and (
            seconds < costs.prefill_chunk
            or (tokens < job.remaining and tokens < policy.least_chunk)
        ):
            break
        chunks.append(Chunk(job.id, tokens))
        budget -= tokens
        seconds -= costs.prefill_chunk + tokens * costs.prefill_token
    return tuple(chunks)


def _affordable(seconds: float, costs: Costs, most: int) -> int:
    """Tokens of one chunk that take no longer than `seconds`, at most so many."""
    left = seconds - costs.prefill_chunk
    if left >= most * costs.prefill_token:
        return most
    return int(left / costs.prefill_token) if left > 0 else 0
