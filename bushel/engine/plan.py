"""What the scheduler is told, and the plan that it answers with: plain values, all frozen.

There are `max_batch` slots. A row that decodes has one, and so has a prompt from its admission
on, for its first row; its other rows, and those that were preempted, wait for one like prompts:

    waiting ──────> prefilling ──> ready, with a slot ───> running
       ^   admit        │          ready, without ──────>     │
       └── preempt ─────┘                ^      join          │
       └──── drop ────── its state ──────┴───── preempt ──────┘

The places are fields of a `State`; the words at the arrows are fields of a `Plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bushel.core.footprint import Memory
    from bushel.core.options import Order

BEFORE = float("-inf")  # any clock


@dataclass(frozen=True)
class Policy:
    max_batch: int = 32
    prefill_chunk: int = 16384  # tokens of prompts in one step, at most
    least_chunk: int = 16
    decode_waits: bool = False  # for prompts; where rows are padded, each that joins copies all
    pack: int = 0  # tokens of prompts that may share a forward pass; 0: each has its own
    whole: bool = False  # prompts are never cut, and those of like lengths run together
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

    decode_step: float = 0.0  # of as many rows as run now
    prefill_token: float = 0.0
    prefill_pass: float = 0.0  # of a forward pass, beside its tokens
    prefill_reach: float = 0.0  # of a token, for each token before it
    late: float = 0.0  # by how much a step of late took longer than was foreseen, at most

    def per_token(self, tokens: int, done: int) -> float:
        """Seconds of each of `tokens`, after the `done` ones."""
        return self.prefill_token + self.prefill_reach * (done + tokens / 2)

    def prompt(self, tokens: int, done: int = 0, *, packed: bool = False) -> float:
        """Seconds of `tokens` after the `done` ones, in a pass of their own unless `packed`."""
        alone = 0.0 if packed or not tokens else self.prefill_pass
        return alone + tokens * self.per_token(tokens, done)


_UNKNOWN = Costs()


class Row(NamedTuple):
    """A choice of a request whose prompt has run."""

    id: int  # no job has the same
    order: int = 0  # of arrival
    since: float = 0.0  # when it got its slot, or began to wait for one
    owner: str = ""
    group: str = ""
    length: int = 0  # tokens that it was promised memory for: what it has, and some room
    yields: int = 0  # how often it was preempted
    slot: bool = True
    state: bool = True  # it holds some of its own; false: it will be given a copy
    priority: int = 0  # among its owner's: the lowest goes first
    background: bool = False  # after everything else


@dataclass(frozen=True)
class PendingPrompt:
    """A prompt that waits for, or is in the middle of, its prefill."""

    id: int
    remaining: int  # tokens to run before it can decode
    last_served: float  # when it got its last chunk, or was admitted; while it waits, arrived
    order: int  # of arrival
    done: int = 0  # tokens it has run; before it begins, those that it will find restored
    length: int = 0  # tokens to promise it memory for: the prompt, and some room
    rows: int = 1  # choices, each of which will be a row
    owner: str = ""
    group: str = ""
    since: float = 0.0  # when it was admitted
    yields: int = 0
    state: bool = False  # it holds some while it waits
    returning: bool = False  # it ran before, and yielded for want of memory
    priority: int = 0
    background: bool = False
    packs: bool = True  # it may share a forward pass, if it is short
    width: int = 0  # tokens of its row in such a pass, with what is run again and padding, if more
    logits: bool = False  # those of all its tokens are wanted


class WorkClass(NamedTuple):
    """An owner's requests of one priority, which wait together."""

    owner: str
    background: bool
    priority: int

    @classmethod
    def of(cls, work: Row | PendingPrompt) -> WorkClass:
        return cls(work.owner, work.background, work.priority)


_NO_CLASSES: Mapping[WorkClass, float] = {}


class Served(NamedTuple):
    """When owners and groups last got a slot; nothing of those who are not there."""

    owners: Mapping[str, float]
    groups: Mapping[str, float]
    chunks: Mapping[str, float]  # when owners last ran one
    classes: Mapping[WorkClass, float] = _NO_CLASSES  # when they last got a slot
    background: float = BEFORE  # when a chunk of such work last ran
    live: float = BEFORE  # when other work was last here


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
    since_decode: float = 0.0  # seconds of prompts since the last decode step was started
    waited: float = 0.0  # of these, in steps after that one


@dataclass(frozen=True)
class Chunk:
    job: int
    tokens: int
    packed: bool = False  # it shares the forward pass of the chunk before it


@dataclass(frozen=True)
class Plan:
    """Carried out in this order."""

    preempt: tuple[int, ...] = ()  # running rows and prefilling jobs that lose their slot
    drop: tuple[int, ...] = ()  # of these and of those without a slot: who lose their state too
    admit: tuple[int, ...] = ()  # waiting jobs that start now
    join: tuple[int, ...] = ()  # ready rows that decode from now on
    chunks: tuple[Chunk, ...] = ()  # at most one per job
    decode: bool = False  # all rows by one token
    seconds: float = field(default=0.0, compare=False)  # that the chunks are expected to take


class Work(NamedTuple):
    """What a step has to do, for whoever wonders why it takes so long."""

    seconds: float = 0.0  # predicted
    prefill: bool = False
    rows: int = 0  # that decode

    @classmethod
    def of(cls, plan: Plan, running: int, costs: Costs) -> Work:
        rows = running + len(plan.join) if plan.decode else 0
        decode = costs.decode_step if rows else 0.0
        prefill = any(chunk.tokens for chunk in plan.chunks)
        return cls(decode + plan.seconds, prefill, rows)
