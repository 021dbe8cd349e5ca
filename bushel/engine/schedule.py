"""What to do next: a pure function from a small frozen state to a plan.

No MLX, no clock, no randomness: the clock and the measured costs are part of the state, so
that the same state gives the same plan on every rank and in every test.

One engine step is at most one prefill chunk and one decode step, in that relation:

    step     | decode | chunk ........ |   | decode | chunk ........ |
    stream          token  <── gap ──────────────> token

Two bounds hold (B61):
  token_gap   decode time + chunk time stays under it, as far as a chunk of `least_chunk`
              tokens allows; a running stream never waits for more than one chunk
  start_wait  a prompt that has gone without a chunk for so long is served before younger
              ones, the longest-waiting first; so its wait is start_wait plus one step for
              each prompt that is overdue before it
Neither prefill nor decode can starve: both are in every plan that has work of both sorts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    max_batch: int = 32
    prefill_chunk: int = 512
    least_chunk: int = 16
    token_gap: float = 0.5  # seconds between two tokens of a running stream
    start_wait: float = 2.0  # seconds without progress of an admitted prompt


@dataclass(frozen=True)
class Costs:
    """Measured seconds; zero until something has been measured."""

    decode_step: float = 0.0
    prefill_token: float = 0.0


@dataclass(frozen=True)
class Job:
    """A prompt that waits for, or is in the middle of, its prefill."""

    id: int
    remaining: int  # tokens to run before it can decode
    last_served: float  # when it got its last chunk, or when it arrived
    order: int  # of arrival


@dataclass(frozen=True)
class State:
    now: float
    running: int  # rows in the decode batch
    ready: int  # prefilled sequences waiting for a row
    prefilling: tuple[Job, ...] = ()
    waiting: tuple[Job, ...] = ()  # in order of arrival
    costs: Costs = Costs()


@dataclass(frozen=True)
class Chunk:
    job: int
    tokens: int


@dataclass(frozen=True)
class Plan:
    admit: tuple[int, ...] = ()  # waiting jobs that start now
    join: int = 0  # ready sequences that get a row now, in order
    chunk: Chunk | None = None
    decode: bool = False


def schedule(state: State, policy: Policy) -> Plan:
    join = min(state.ready, policy.max_batch - state.running)
    taken = state.running + state.ready + len(state.prefilling)
    admit = state.waiting[: max(0, policy.max_batch - taken)]
    jobs = (*state.prefilling, *admit)
    running = state.running + join
    chunk = None
    if jobs:
        job = _next_job(jobs, state.now, policy)
        chunk = Chunk(job.id, _chunk_tokens(job, running, state.costs, policy))
    return Plan(tuple(job.id for job in admit), join, chunk, decode=running > 0)


def _next_job(jobs: tuple[Job, ...], now: float, policy: Policy) -> Job:
    """First come, first served, unless someone has waited too long."""
    overdue = [job for job in jobs if now - job.last_served >= policy.start_wait]
    if overdue:
        return min(overdue, key=lambda job: (job.last_served, job.order))
    return min(jobs, key=lambda job: job.order)


def _chunk_tokens(job: Job, running: int, costs: Costs, policy: Policy) -> int:
    tokens = policy.prefill_chunk
    if running and costs.prefill_token > 0:
        spare = policy.token_gap - costs.decode_step
        tokens = min(tokens, int(spare / costs.prefill_token))
    tokens = max(tokens, min(policy.least_chunk, policy.prefill_chunk))
    return min(tokens, job.remaining)
