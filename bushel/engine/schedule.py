"""What to do next: a pure function from a small frozen state to a plan.

No MLX, no clock, no randomness: the clock and the measured costs are part of the state, so
that the same state gives the same plan on every rank and in every test.

One engine step is one decode step of all rows and up to a budget of prefill tokens, spent on
one prompt after the other:

    step     | decode | prefill ....... |   | decode | prefill ....... |
    stream          token  <── gap ───────────────> token

Two bounds hold (B61):
  token_gap   decode time + prefill time stays under it, as far as `least_chunk` tokens allow
  start_wait  a prompt that has gone without progress for so long is served before younger
              ones, the longest-waiting first; so its wait is start_wait plus one step for
              each prompt that is overdue before it
Neither prefill nor decode can starve: both are in every plan that has work of both sorts.

A prompt is admitted when a row is free and memory is (`memory`). They wait in the order of the
policy, and nobody overtakes one that does not fit yet, so that it will.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bushel.core.memory import Memory
    from bushel.core.options import Order


@dataclass(frozen=True)
class Policy:
    max_batch: int = 32
    prefill_chunk: int = 512
    least_chunk: int = 16
    token_gap: float = 0.5  # seconds between two tokens of a running stream
    start_wait: float = 2.0  # seconds without progress of an admitted prompt
    order: Order = "arrival"  # of admission
    oldest: float = 10.0  # seconds in the queue after which "shortest" yields to arrival


class Costs(NamedTuple):
    """Measured seconds; zero until something has been measured."""

    decode_step: float = 0.0
    prefill_token: float = 0.0
    prefill_chunk: float = 0.0  # beside its tokens


_UNKNOWN = Costs()


@dataclass(frozen=True)
class Job:
    """A prompt that waits for, or is in the middle of, its prefill."""

    id: int
    remaining: int  # tokens to run before it can decode
    last_served: float  # when it got its last chunk, or was admitted; while it waits, arrived
    order: int  # of arrival
    done: int = 0  # tokens it has run
    length: int = 0  # of prompt and reply at their longest
    rows: int = 1  # choices, each of which will be a row


@dataclass(frozen=True)
class State:
    now: float
    running: int  # rows in the decode batch
    ready: int  # prefilled sequences waiting for a row
    prefilling: tuple[Job, ...] = ()
    waiting: tuple[Job, ...] = ()  # in order of arrival
    costs: Costs = _UNKNOWN
    memory: Memory | None = None  # with what the rows so far were promised; None: enough


@dataclass(frozen=True)
class Chunk:
    job: int
    tokens: int


@dataclass(frozen=True)
class Plan:
    admit: tuple[int, ...] = ()  # waiting jobs that start now
    join: int = 0  # ready sequences that get a row now, in order
    chunks: tuple[Chunk, ...] = ()  # at most one per job
    decode: bool = False


class Work(NamedTuple):
    """What a step has to do, for whoever wonders why it takes so long."""

    seconds: float = 0.0  # predicted
    prefill: bool = False
    rows: int = 0  # that decode

    @classmethod
    def of(cls, plan: Plan, running: int, costs: Costs) -> Work:
        rows = running + plan.join
        seconds = costs.decode_step if rows else 0.0
        if not plan.chunks:
            return cls(seconds, False, rows)
        tokens = sum(chunk.tokens for chunk in plan.chunks)
        seconds += tokens * costs.prefill_token + len(plan.chunks) * costs.prefill_chunk
        return cls(seconds, tokens > 0, rows)


def schedule(state: State, policy: Policy) -> Plan:
    join = min(state.ready, policy.max_batch - state.running)
    admit, memory = _admit(state, policy)
    # Time in the queue does not count, or every newcomer would overtake who is being served.
    started = tuple(replace(job, last_served=state.now) for job in admit)
    running = state.running + join
    chunks = _chunks(
        sorted((*state.prefilling, *started), key=lambda job: _urgency(job, state.now, policy)),
        _room(running, state.costs, policy),
        state.costs,
        memory,
        policy,
    )
    return Plan(tuple(job.id for job in admit), join, chunks, decode=running > 0)


def _admit(state: State, policy: Policy) -> tuple[list[Job], Memory | None]:
    """Who starts now, and what is then promised."""
    free = policy.max_batch - (state.running + state.ready + len(state.prefilling))
    memory, admit = state.memory, list[Job]()
    for job in _in_order(state.waiting, state.now, policy)[: max(0, free)]:
        if memory is not None:
            promised = memory.with_rows(job.rows, job.length)
            if not promised.fits(min(policy.least_chunk, policy.prefill_chunk)):
                break
            memory = promised
        admit.append(job)
    return admit, memory


def _in_order(waiting: Sequence[Job], now: float, policy: Policy) -> Sequence[Job]:
    if policy.order == "arrival":
        return waiting

    def rank(job: Job) -> tuple[bool, int, int]:
        old = now - job.last_served >= policy.oldest
        return not old, 0 if old else job.remaining, job.order

    return sorted(waiting, key=rank)


def _urgency(job: Job, now: float, policy: Policy) -> tuple[bool, float, int]:
    """First come, first served, unless someone has waited too long."""
    overdue = now - job.last_served >= policy.start_wait
    return not overdue, job.last_served if overdue else 0.0, job.order


def _room(running: int, costs: Costs, policy: Policy) -> float:
    """Seconds that the prompts of this step may take."""
    return policy.token_gap - costs.decode_step if running else float("inf")


def _chunks(
    jobs: list[Job], room: float, costs: Costs, memory: Memory | None, policy: Policy
) -> tuple[Chunk, ...]:
    """Whole prompts while they fit; a piece of one only if it is worth a pass of its own.

    The first one is served in any case, with `least_chunk` tokens if need be.
    """
    chunks: list[Chunk] = []
    budget = policy.prefill_chunk
    for job in jobs:
        tokens = min(job.remaining, budget, _affordable(room, costs, budget))
        if not chunks:
            tokens = max(tokens, min(job.remaining, policy.least_chunk, policy.prefill_chunk))
        if memory is not None:
            tokens = memory.chunk(tokens, policy.least_chunk, job.done + tokens)
        if chunks and (
            room < costs.prefill_chunk or (tokens < job.remaining and tokens < policy.least_chunk)
        ):
            break
        chunks.append(Chunk(job.id, tokens))
        budget -= tokens
        room -= costs.prefill_chunk + tokens * costs.prefill_token
    return tuple(chunks)


def _affordable(room: float, costs: Costs, most: int) -> int:
    """Tokens of one chunk that take no longer than `room`, at most so many."""
    left = room - costs.prefill_chunk
    if left >= most * costs.prefill_token:
        return most
    return int(left / costs.prefill_token) if left > 0 else 0
