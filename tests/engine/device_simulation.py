"""An engine without a model over a device that is behind the host, in closed loops of clients.

It launches and waits as `Engine.execute` does; a `Stopwatch` tells the scheduler what steps cost.
Costs are about those of an 8B model on a large GPU.
"""

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from bushel.engine.plan import Chunk, PendingPrompt, Plan, Policy, Row, State
from bushel.engine.scheduler import schedule
from bushel.engine.step_costs import Passes, Stopwatch, total
from bushel.engine.step_times import StepTimes

CLIENTS, REQUESTS, REPLY = 32, 64, 128
APART = 0.02  # seconds between the first requests of two clients
_LAUNCH, _AHEAD = 0.003, 0.002  # seconds of the host for a pass, and of those after it has begun
# MLX lets the host get ten command buffers ahead of the device; a pass of an 8B model has sixteen.
AHEAD = 10 / 16  # of a pass
_HOST = 0.0003  # seconds of the host before a step, and for what it has read
_MOST_STEPS = 20_000
_POLICY = Policy(max_batch=CLIENTS, decode_waits=True, pack=256)


class Device(NamedTuple):
    """What it takes, in seconds."""

    decode: float = 0.0045
    row: float = 0.0003  # of each row that decodes
    forward: float = 0.006  # of a pass of prompts
    token: float = 1 / 30_000


_LARGE_GPU = Device()


class Asked(NamedTuple):
    at: float
    tokens: int  # of its prompt
    reply: int = REPLY


class Speed(NamedTuple):
    tokens_per_second: float
    first_p95: float  # seconds until the first token
    gap_p95: float  # of the largest gap of each reply


@dataclass
class _Prompt:
    tokens: int
    last_served: float
    done: int = 0

    def job(self, id: int) -> PendingPrompt:
        left = self.tokens - self.done
        return PendingPrompt(id, left, self.last_served, id, self.done, group=str(id))


@dataclass
class _Reply:
    arrived: float
    first: float = 0.0
    last: float = 0.0
    gap: float = 0.0

    def token(self, now: float) -> None:
        if self.first:
            self.gap = max(self.gap, now - self.last)
        else:
            self.first = now - self.arrived
        self.last = now


@dataclass
class _Step:
    ready: float  # when the device has done it
    rows: list[int] = field(default_factory=list)


class ClosedLoops:
    def __init__(
        self,
        seed: int,
        watch: Stopwatch,
        often: float,
        most: float,
        ahead: float = AHEAD,
        costs: Device = _LARGE_GPU,
    ):
        """Of so many steps, the host dawdles before one, for up to so many seconds. ahead: passes
        of which it may be ahead of the device.
        """
        self._ahead, self._costs = ahead, costs
        self._chance = Random(seed)
        self._often, self._most = often, most
        self._now = self._device = self._chunk_ready = 0.0
        self._times = StepTimes(lambda: self._now, behind=True)
        self._times.stopwatch = watch
        self._due = [APART * at for at in range(CLIENTS)]
        self._todo = [self._chance.randint(200, 2000) for _ in range(REQUESTS)]
        self._waiting: dict[int, _Prompt] = {}
        self._prefilling: dict[int, _Prompt] = {}
        self._ready: list[int] = []
        self._rows: dict[int, int] = {}  # tokens that are left to say
        self._pending: _Step | None = None
        self._replies: list[_Reply] = []
        self._tokens = 0
        self.foreseen: list[tuple[float, float]] = []  # of each step's prompts, and what they took

    def run(self) -> Speed:
        for _ in range(_MOST_STEPS):
            if not self._busy and not self._due:
                break
            if not self._busy:
                self._now = max(self._now, self._due[0])
            while self._due and self._due[0] <= self._now:
                self._due.pop(0)
                self._ask()
            self._step()
        assert not self._busy
        self._times.rest()
        firsts = sorted(reply.first for reply in self._replies)
        gaps = sorted(reply.gap for reply in self._replies)
        p95 = int(0.95 * len(self._replies))
        return Speed(self._tokens / self._now, firsts[p95], gaps[p95])

    @property
    def _busy(self) -> bool:
        return bool(self._waiting or self._prefilling or self._ready or self._rows or self._pending)

    def _ask(self) -> None:
        if self._todo:
            self._waiting[len(self._replies)] = _Prompt(self._todo.pop(0), self._now)
            self._replies.append(_Reply(self._now))

    def _step(self) -> None:
        self._now += _HOST
        if self._chance.random() < self._often:
            self._now += self._chance.random() * self._most
        self._times.began = began = self._now
        plan = self._plan()
        for id in plan.admit:
            self._prefilling[id] = self._waiting.pop(id)
            self._prefilling[id].last_served = began
        for id in plan.join:
            self._ready.remove(id)
            self._rows[id] = self._reply_of(id)
        before, self._pending = self._pending, None
        if plan.decode and self._rows:
            self._decode()
        if self._pending is not None or not plan.chunks:
            self._now = max(self._now, self._chunk_ready)
        if before is not None:
            self._read(before)
        self._times.caught_up()
        passes = self._run_prompts(plan, began)
        rows = len(self._pending.rows) if self._pending else 0
        self._times.end(rows, passes, read=False, decoded=plan.decode)

    def _reply_of(self, id: int) -> int:
        return REPLY

    def _plan(self) -> Plan:
        running, ready = (tuple(Row(id, id) for id in ids) for ids in (self._rows, self._ready))
        state = State(
            self._now,
            running,
            ready,
            tuple(prompt.job(id) for id, prompt in self._prefilling.items()),
            tuple(prompt.job(id) for id, prompt in self._waiting.items()),
            self._times.costs(len(running) + len(ready)),
            since_decode=self._times.since_decode,
            waited=self._times.waited,
        )
        return schedule(state, _POLICY)

    def _launch(self, seconds: float) -> float:
        """When the device has done what is launched now; returns once it has begun most of it."""
        self._now += _LAUNCH
        self._device = max(self._device, self._now - _AHEAD) + seconds
        self._now = max(self._now, self._device - self._ahead * seconds)
        return self._device

    def _decode(self) -> None:
        rows = list(self._rows)
        self._pending = _Step(self._launch(self._costs.decode + self._costs.row * len(rows)), rows)
        self._rows = {id: left - 1 for id, left in self._rows.items() if left > 1}

    def _run_prompts(self, plan: Plan, now: float) -> list[Passes]:
        passes, took = [], 0.0
        costs = self._times.costs(len(self._pending.rows) if self._pending else 0)
        for chunks in _passes_of(plan):
            prompts = [self._prefilling[chunk.job] for chunk in chunks]
            if self._pending is None:
                self._now = max(self._now, self._chunk_ready)
            width = max(chunk.tokens for chunk in chunks)  # each is padded to the longest
            padded = max(width + prompt.done % 256 for prompt in prompts)
            columns = len(chunks) * -(-padded // 128) * 128
            seconds = self._costs.forward + columns * self._costs.token
            took += seconds
            self._chunk_ready = self._launch(seconds)
            together = Passes()
            for at, (chunk, prompt) in enumerate(zip(chunks, prompts, strict=True)):
                together = together.with_chunk(width, prompt.done, packed=at > 0)
                prompt.done, prompt.last_served = prompt.done + chunk.tokens, now
                if prompt.done == prompt.tokens:
                    del self._prefilling[chunk.job]
                    self._ready.append(chunk.job)
            passes.append(together)
        if passes:
            self.foreseen.append((total(passes).seconds(costs), took))
        return passes

    def _read(self, step: _Step) -> None:
        self._now = max(self._now, step.ready) + _HOST
        for id in step.rows:
            self._tokens += 1
            self._replies[id].token(self._now)
            if id not in self._rows and id not in (self._pending.rows if self._pending else []):
                self._ask()


def _passes_of(plan: Plan) -> list[list[Chunk]]:
    """Chunks that share a forward pass."""
    together: list[list[Chunk]] = []
    for chunk in plan.chunks:
        if chunk.packed:
            together[-1].append(chunk)
        else:
            together.append([chunk])
    return together


class OpenLoop(ClosedLoops):
    """Requests that come when they come, whatever became of others."""

    def __init__(self, asked: list[Asked], watch: Stopwatch, ahead: float, costs: Device):
        super().__init__(0, watch, 0.0, 0.0, ahead, costs)
        self._asked = asked
        self._todo, self._due = [one.tokens for one in asked], [one.at for one in asked]

    @property
    def gaps(self) -> list[float]:
        """The largest of each reply."""
        return [reply.gap for reply in self._replies]

    def _reply_of(self, id: int) -> int:
        return self._asked[id].reply

    def _read(self, step: _Step) -> None:
        self._now = max(self._now, step.ready) + _HOST
        for id in step.rows:
            self._replies[id].token(self._now)
