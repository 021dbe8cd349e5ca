"""What to do next: a pure function from a small frozen state to a plan.

No MLX, no clock, no randomness: the clock and the measured costs are part of the state, so
that the same state gives the same plan on every rank and in every test. `plan` has the nouns.
Slots are given out first (`slot_sharing`); then prompts share the time that a step may take.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bushel.engine.plan import BEFORE, Chunk, Costs, PendingPrompt, Plan, Policy, State
from bushel.engine.slot_sharing import Slots

if TYPE_CHECKING:
    from bushel.core.footprint import Memory


def schedule(state: State, policy: Policy) -> Plan:
    slots = Slots(state, policy)
    slots.relieve()
    slots.hand_out()
    slots.take_back()
    gone = {victim.id for victim in (*slots.preempted, *slots.dropped)}
    with_slot = [row for row in state.ready if row.slot and row.id not in gone]
    join = with_slot[: max(0, policy.max_batch - len(state.running))] + slots.joining
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


def _by_urgency(jobs: Sequence[PendingPrompt], state: State, policy: Policy) -> list[PendingPrompt]:
    """Owners in turn; of an owner's, first come, first served, unless someone waited too long."""
    now, groups = state.now, dict[str, float]()
    for job in jobs:
        groups[job.group] = max(groups.get(job.group, BEFORE), job.last_served)

    def urgency(job: PendingPrompt) -> tuple[float, bool, bool, float, int]:
        turn = state.served.chunks.get(job.owner, BEFORE)
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
