"""An engine without a model: carries out plans, and its clock moves by known costs.

A step is a decode of all rows, then the chunks one after the other, as in `engine.step`.
What it reports are the two waits that the scheduler promises to bound:

    gap    from one token of a stream to its next
    wait   of an admitted prompt, from its last chunk (or its admission) to its next one
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bushel.engine.schedule import Costs, Job, Plan, Policy, State, schedule

Schedule = Callable[[State, Policy], Plan]
_MOST_STEPS = 10_000


@dataclass(frozen=True)
class Arrival:
    at: float
    prompt: int  # tokens to prefill
    reply: int  # tokens to decode
    choices: int = 1


@dataclass(frozen=True)
class Wait:
    seconds: float
    overdue_before: int  # prompts that came first when this one became overdue


@dataclass
class Trace:
    gaps: list[float] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    longest_step: float = 0.0
    most_rows: int = 0
    finished: bool = False

    def longest_gap(self) -> float:
        return max(self.gaps, default=0.0)

    def late(self, start_wait: float) -> list[Wait]:
        """Waits beyond the promise: start_wait, a step for each prompt that is overdue before,
        and the step that was running when this one became overdue."""
        return [
            wait
            for wait in self.waits
            if wait.seconds > start_wait + (wait.overdue_before + 1) * self.longest_step + 1e-9
        ]


@dataclass
class _Prompt:
    arrival: Arrival
    order: int
    remaining: int
    last_served: float
    admitted: float = 0.0
    overdue_before: int | None = None

    def job(self) -> Job:
        return Job(self.order, self.remaining, self.last_served, self.order)


@dataclass
class _Row:
    left: int
    last_token: float | None = None


class Simulation:
    def __init__(self, arrivals: Sequence[Arrival], policy: Policy, costs: Costs, plan: Schedule):
        self._coming = sorted(arrivals, key=lambda it: it.at)
        self._policy, self._costs, self._plan = policy, costs, plan
        self._now = 0.0
        self._order = 0
        self._waiting: dict[int, _Prompt] = {}
        self._prefilling: dict[int, _Prompt] = {}
        self._ready: list[_Row] = []
        self._rows: list[_Row] = []
        self.trace = Trace()

    def run(self) -> Trace:
        for _ in range(_MOST_STEPS):
            self._arrive()
            if not (self._waiting or self._prefilling or self._ready or self._rows):
                self.trace.finished = True
                break
            self._step()
        return self.trace

    def _arrive(self) -> None:
        idle = not (self._waiting or self._prefilling or self._ready or self._rows)
        if idle and self._coming:
            self._now = max(self._now, self._coming[0].at)
        while self._coming and self._coming[0].at <= self._now:
            it = self._coming.pop(0)
            self._waiting[self._order] = _Prompt(it, self._order, it.prompt, it.at)
            self._order += 1

    def _step(self) -> None:
        start = self._now
        plan = self._plan(
            State(
                start,
                len(self._rows),
                len(self._ready),
                tuple(prompt.job() for prompt in self._prefilling.values()),
                tuple(prompt.job() for prompt in self._waiting.values()),
                self._costs,
            ),
            self._policy,
        )
        for key in plan.admit:
            prompt = self._prefilling[key] = self._waiting.pop(key)
            prompt.admitted = prompt.last_served = start
        self._rows += self._ready[: plan.join]
        self._ready = self._ready[plan.join :]
        self._count_overdue(start)
        if plan.decode:
            self._decode()
        for chunk in plan.chunks:
            self._prefill(self._prefilling[chunk.job], chunk.tokens, start)
        self._rows = [row for row in self._rows if row.left]
        self.trace.longest_step = max(self.trace.longest_step, self._now - start)

    def _count_overdue(self, start: float) -> None:
        for prompt in self._prefilling.values():
            if prompt.overdue_before is None and (
                start - prompt.last_served >= self._policy.start_wait
            ):
                everyone = self._prefilling.values()
                mine = (prompt.last_served, prompt.order)
                earlier = [it for it in everyone if (it.last_served, it.order) < mine]
                prompt.overdue_before = len(earlier)

    def _decode(self) -> None:
        self._now += self._costs.decode_step
        self.trace.most_rows = max(self.trace.most_rows, len(self._rows))
        for row in self._rows:
            if row.last_token is not None:
                self.trace.gaps.append(self._now - row.last_token)
            row.last_token = self._now
            row.left -= 1

    def _prefill(self, prompt: _Prompt, tokens: int, start: float) -> None:
        since = max(prompt.last_served, prompt.admitted)
        self.trace.waits.append(Wait(start - since, prompt.overdue_before or 0))
        self._now += self._costs.prefill_chunk + tokens * self._costs.prefill_token
        prompt.remaining -= tokens
        prompt.last_served, prompt.overdue_before = self._now, None
        if prompt.remaining <= 0:
            del self._prefilling[prompt.order]
            choices = prompt.arrival.choices
            self._ready += [_Row(prompt.arrival.reply) for _ in range(choices)]


def simulate(
    arrivals: Sequence[Arrival], policy: Policy, costs: Costs, plan: Schedule = schedule
) -> Trace:
    return Simulation(arrivals, policy, costs, plan).run()
