"""An engine without a model: carries out plans, and its clock moves by known costs.

A step is a decode of all rows, then the chunks one after the other, as in `engine.step`. Between
two steps the host needs a moment, in which requests may arrive.
What it reports are the waits that the scheduler promises to bound:

    gap    from one token of a stream to its next, while it has its slot
    wait   of an admitted prompt, from its last chunk (or its admission) to its next one
    first  from a request's arrival to its first token
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bushel.core.footprint import Memory
from bushel.engine.plan import (
    BEFORE,
    Costs,
    PendingPrompt,
    Plan,
    Policy,
    Row,
    Served,
    State,
    WorkClass,
)
from bushel.engine.scheduler import schedule

Schedule = Callable[[State, Policy], Plan]
_MOST_STEPS = 10_000
OVERHEAD = 0.0005  # seconds of the host, before each step


@dataclass(frozen=True)
class Arrival:
    at: float
    prompt: int  # tokens to prefill
    reply: int  # tokens to decode
    choices: int = 1
    owner: str = ""
    group: str = ""  # empty: it is a request of its own
    priority: int = 0
    background: bool = False


@dataclass(frozen=True)
class Wait:
    seconds: float
    overdue_before: int  # prompts that came first when this one became overdue


@dataclass
class Trace:
    gaps: list[float] = field(default_factory=list)
    live_gaps: list[float] = field(default_factory=list)  # of rows that are not in the background
    waits: list[Wait] = field(default_factory=list)
    first: list[tuple[Arrival, float]] = field(default_factory=list)
    ended: list[tuple[Arrival, float]] = field(default_factory=list)
    yields: Counter[int] = field(default_factory=Counter)  # by row
    longest_step: float = 0.0
    most_rows: int = 0
    finished: bool = False
    end: float = 0.0

    def longest_gap(self) -> float:
        return max(self.gaps, default=0.0)

    def late(self, start_wait: float) -> list[Wait]:
        """Waits beyond the promise: start_wait, a step for each prompt that is overdue before,
        and the step that was running when this one became overdue."""
        step = self.longest_step + OVERHEAD
        return [
            wait
            for wait in self.waits
            if wait.seconds > start_wait + (wait.overdue_before + 1) * step + 1e-9
        ]


@dataclass
class _Prompt:
    arrival: Arrival
    order: int
    remaining: int
    last_served: float
    rows: list["_Row"]
    admitted: float = 0.0
    begun: bool = False
    done: int = 0
    overdue_before: int | None = None

    def turn(self) -> tuple[float, int, int]:
        """Of those that are overdue, who has waited longest is first."""
        return self.last_served, self.arrival.priority, self.order

    def job(self, id: int) -> PendingPrompt:
        it, row = self.arrival, self.rows[0].row
        length = it.prompt + it.reply
        return PendingPrompt(
            id, self.remaining, self.last_served, self.order, self.done, length, len(self.rows),
            row.owner, row.group, self.admitted, row.yields, self.begun,
            priority=row.priority, background=row.background,
        )  # fmt: skip


@dataclass
class _Row:
    arrival: Arrival
    row: Row
    left: int
    last_token: float | None = None


class Simulation:
    def __init__(
        self,
        arrivals: Sequence[Arrival],
        policy: Policy,
        costs: Costs,
        plan: Schedule,
        memory: Memory | None = None,
    ):
        self._coming = sorted(arrivals, key=lambda it: it.at)
        self._policy, self._costs, self._plan, self._memory = policy, costs, plan, memory
        self._now = self._decoded = 0.0
        self._ids = 0
        self._waiting: dict[int, _Prompt] = {}
        self._prefilling: dict[int, _Prompt] = {}
        self._ready: dict[int, _Row] = {}
        self._rows: dict[int, _Row] = {}
        self._owners: dict[str, float] = {}  # when they last got a slot
        self._groups: dict[str, float] = {}
        self._chunks: dict[str, float] = {}  # when owners last ran one
        self._classes: dict[WorkClass, float] = {}
        self._background = BEFORE  # when a chunk of such work last ran
        self._live = BEFORE  # when other work was last here
        self._begun: set[int] = set()
        self.trace = Trace()

    def run(self) -> Trace:
        for _ in range(_MOST_STEPS):
            self._arrive()
            if not self._busy:
                self.trace.finished = True
                break
            self._now += OVERHEAD
            self._arrive()
            self._step()
        self.trace.end = self._now
        return self.trace

    @property
    def _busy(self) -> bool:
        return bool(self._waiting or self._prefilling or self._ready or self._rows)

    def _new(self) -> int:
        self._ids += 1
        return self._ids

    def _arrive(self) -> None:
        if not self._busy and self._coming:
            self._now = max(self._now, self._coming[0].at)
        while self._coming and self._coming[0].at <= self._now:
            it, order = self._coming.pop(0), self._new()
            group, length = it.group or str(order), it.prompt + it.reply
            kind = {"priority": it.priority, "background": it.background}
            rows = [
                _Row(it, Row(self._new(), order, it.at, it.owner, group, length, **kind), it.reply)
                for _ in range(it.choices)
            ]
            self._waiting[order] = _Prompt(it, order, it.prompt, it.at, rows)

    def _promised(self) -> Memory | None:
        if self._memory is None:
            return None
        paused = [it for it in self._waiting.values() if it.begun]
        rows = [row for it in (*self._prefilling.values(), *paused) for row in it.rows[:2]]
        rows += [it for it in (*self._ready.values(), *self._rows.values()) if it.row.state]
        shared = {it.row.order: it for it in self._ready.values() if not it.row.state}
        lengths = [it.row.length for it in (*rows, *shared.values())]
        return self._memory.with_rows(len(lengths), max(lengths, default=0))

    def _step(self) -> None:
        start = self._now
        prompts = (*self._waiting.values(), *self._prefilling.values())
        work = (*prompts, *self._ready.values(), *self._rows.values())
        if not all(it.arrival.background for it in work):
            self._live = start
        times = (self._owners, self._groups, self._chunks, self._classes)
        plan = self._plan(
            State(
                start,
                tuple(it.row for it in self._rows.values()),
                tuple(it.row for it in self._ready.values()),
                tuple(prompt.job(id) for id, prompt in self._prefilling.items()),
                tuple(prompt.job(id) for id, prompt in self._waiting.items()),
                self._costs,
                self._promised(),
                Served(*times, self._background, self._live),
                self._now - self._decoded,
            ),
            self._policy,
        )
        self._preempt(plan, start)
        for id in plan.admit:
            prompt = self._prefilling[id] = self._waiting.pop(id)
            prompt.admitted = prompt.last_served = start
            self._serve(prompt.rows[0].row)
        for id in plan.join:
            row = self._rows[id] = self._ready.pop(id)
            if not row.row.slot:
                self._serve(row.row)
            row.row = row.row._replace(since=start, slot=True, state=True)
        self._count_overdue(start)
        if plan.decode:
            self._decode()
        for chunk in plan.chunks:
            self._prefill(chunk.job, chunk.tokens, start, packed=chunk.packed)
        self._rows = {id: row for id, row in self._rows.items() if row.left > 0}
        self.trace.longest_step = max(self.trace.longest_step, self._now - start)

    def _serve(self, row: Row) -> None:
        self._owners[row.owner] = self._groups[row.group] = self._now
        self._classes[WorkClass.of(row)] = self._now

    def _preempt(self, plan: Plan, start: float) -> None:
        for id in plan.preempt:
            self.trace.yields[id] += 1
            if id in self._prefilling:
                prompt = self._waiting[id] = self._prefilling.pop(id)
                prompt.last_served = start
                for it in prompt.rows:
                    it.row = it.row._replace(yields=it.row.yields + 1)
                continue
            row = self._ready[id] = self._rows.pop(id)
            row.last_token = None
            more = row.row.yields + 1
            row.row = row.row._replace(since=start, slot=False, state=True, yields=more)
        for id in plan.drop:
            if id in self._ready:
                row = self._ready.pop(id)
                tokens = row.arrival.prompt + row.arrival.reply - row.left
                row.row = row.row._replace(state=False)
                rest = _Prompt(row.arrival, row.row.order, tokens, start, [row])
                self._waiting[self._new()] = rest
            else:
                prompt = self._waiting[id]
                prompt.remaining, prompt.done = prompt.remaining + prompt.done, 0
                prompt.begun = False

    def _count_overdue(self, start: float) -> None:
        for prompt in self._prefilling.values():
            if prompt.overdue_before is None and (
                start - prompt.last_served >= self._policy.start_wait
            ):
                everyone = self._prefilling.values()
                mine = prompt.turn()
                prompt.overdue_before = sum(it.turn() < mine for it in everyone)

    def _decode(self) -> None:
        self._now += self._costs.decode_step
        self._decoded = self._now
        self.trace.most_rows = max(self.trace.most_rows, len(self._rows))
        for row in self._rows.values():
            if row.last_token is not None:
                self.trace.gaps.append(self._now - row.last_token)
                if not row.arrival.background:
                    self.trace.live_gaps.append(self._now - row.last_token)
            if row.row.order not in self._begun:
                self._begun.add(row.row.order)
                self.trace.first.append((row.arrival, self._now - row.arrival.at))
            row.last_token = self._now
            row.left -= 1
            if not row.left:
                self.trace.ended.append((row.arrival, self._now))

    def _prefill(self, id: int, tokens: int, start: float, *, packed: bool) -> None:
        prompt = self._prefilling[id]
        since = max(prompt.last_served, prompt.admitted)
        self.trace.waits.append(Wait(start - since, prompt.overdue_before or 0))
        self._now += (
            0.0 if packed else self._costs.prefill_pass
        ) + tokens * self._costs.prefill_token
        prompt.remaining -= tokens
        prompt.done += tokens
        prompt.begun = True
        prompt.last_served, prompt.overdue_before = start, None
        self._chunks[prompt.arrival.owner] = start
        if prompt.arrival.background:
            self._background = start
        if prompt.remaining <= 0:
            del self._prefilling[id]
            for at, it in enumerate(prompt.rows):
                it.row = it.row._replace(since=self._now, slot=at == 0, state=at == 0)
                self._ready[it.row.id] = it


def simulate(
    arrivals: Sequence[Arrival],
    policy: Policy,
    costs: Costs,
    plan: Schedule = schedule,
    memory: Memory | None = None,
) -> Trace:
    return Simulation(arrivals, policy, costs, plan, memory).run()
