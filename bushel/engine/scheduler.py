"""What to do next: a pure function from a small frozen state to a plan.

No MLX, no clock, no randomness: the clock and the measured costs are part of the state, so
that the same state gives the same plan on every rank and in every test. `plan` has the nouns.
Slots are given out first (`slot_sharing`); then prompts share the time that a step may take.

One engine step is up to a budget of prefill tokens, spent on one prompt after the other, and one
decode step of all rows whenever that is due:

    step     | decode | prefill ... |   | prefill ... |   | decode | prefill ... |
    stream          token  <── gap ────────────────────────────> token

A decode step takes hardly longer for many rows than for few, so that prompts are run first, as long
as streams do not feel it: until they have taken DECODE_WORTH times as long as a decode step takes.
Where prompts are slow, the gap between two tokens says how long. Where rows are padded, and joining
them costs, every step decodes.

Two bounds hold (B61):
  token_gap   decode time + prefill time stays under it, as far as `least_chunk` tokens allow
  start_wait  a prompt that has gone without progress for so long is served before younger ones
              of its owner, the longest-waiting first; so its wait is start_wait plus one step
              for each prompt that is overdue before it. Owners take turns
Neither prefill nor decode can starve: prefill is in every plan that has work of both sorts, and
decode in every one after which it would be late.
Prompts of a lower `priority` come first among their owner's that are not overdue. Those in the
background have BACKGROUND_SHARE of the time beside live rows, and beside live prompts a least chunk
when they are overdue (B82).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bushel.engine.plan import BEFORE, Chunk, Costs, PendingPrompt, Plan, Policy, State
from bushel.engine.slot_sharing import Slots

if TYPE_CHECKING:
    from bushel.core.footprint import Memory


# Of the gap that streams were promised, what is left for surprises, as steps were late before: at
# the least, and at the most.
_SPARE = (0.35, 0.5)
# Seconds of prompts for each second of decoding, while both want the device. Twice as many would
# gain a twentieth of its time for prompts, and make streams beside them half as fast.
DECODE_WORTH = 10.0
# Seconds of prompts in the background for each second, while live rows decode: with the row that
# `slot_sharing` lets decode beside eight of them, their tokens take a fifth longer.
BACKGROUND_SHARE = 0.1
# Tokens of the first chunk of all, when nobody knows how long it will take.
_UNMEASURED = 512
# Tokens of a step beside rows or other prompts: each decodes as soon as its step has ended.
_BESIDE_OTHERS = 8192
# Of a pass over whole texts, how much may be padding; of one of few tokens any, because to read
# the weights takes longer.
_PADDING, _SMALL = 0.25, 512
# Tokens that cost what a pass does, when nobody knows.
_WORTH = 64
# (multiple, least): chunks of `least` tokens or more are a multiple; short ones a power of two.
_EVEN = ((1024, 2048), (128, 128))


def schedule(state: State, policy: Policy) -> Plan:
    slots = Slots(state, policy)
    slots.relieve()
    slots.clear()
    slots.hand_out()
    slots.take_back()
    gone = {victim.id for victim in (*slots.preempted, *slots.dropped)}
    with_slot = [row for row in state.ready if row.slot and row.id not in gone]
    join = with_slot[: max(0, policy.max_batch - len(state.running))] + slots.joining
    prefilling = [job for job in state.prefilling if job.id not in gone]
    before = sum(row.id not in gone for row in state.running)
    running = before + len(join)
    # Time in the queue does not count, or every newcomer would overtake who is being served.
    started = [replace(job, last_served=state.now) for job in slots.admitted]
    jobs = _by_urgency([*prefilling, *started], state, policy)
    seconds = _seconds_for_prompts(running, state.costs, policy)
    live = any(not row.background for row in (*state.running, *join) if row.id not in gone)
    jobs, seconds, beside = _with_background(jobs, seconds, state, policy, live=live)
    how = {"alone": not running and len(jobs) == 1, "small": beside}
    chunks = _chunks(jobs, seconds, state.costs, slots.memory, policy, **how)
    left = 0.0 if beside else seconds - state.since_decode
    wait = policy.decode_waits and before > 0 and _can_wait(chunks, jobs, left, state.costs)
    if before and state.waited and not wait:
        # The next token of a row is told after the prompts of this step, and its last one was told
        # before those that it waited for.
        seconds = max(seconds / 2, seconds - state.waited)
        chunks = _chunks(jobs, seconds, state.costs, slots.memory, policy, **how)
    return Plan(
        preempt=tuple(victim.id for victim in slots.preempted),
        drop=tuple(victim.id for victim in slots.dropped),
        admit=tuple(job.id for job in slots.admitted),
        join=() if wait else tuple(row.id for row in join),
        chunks=chunks,
        decode=running > 0 and not wait,
        seconds=_seconds_of(chunks, jobs, state.costs),
    )


def _by_urgency(jobs: Sequence[PendingPrompt], state: State, policy: Policy) -> list[PendingPrompt]:
    """Owners in turn; of an owner's, first come, first served, unless someone waited too long. Of a
    request with many prompts the next one comes after the first of every other request.
    """
    now, groups = state.now, dict[str, float]()
    places, before = dict[int, int](), Counter[str]()  # of each among its request's
    for job in sorted(jobs, key=lambda job: job.order):
        groups[job.group] = max(groups.get(job.group, BEFORE), job.last_served)
        places[job.id] = 0 if policy.whole else before[job.group]
        before[job.group] += 1

    def urgency(job: PendingPrompt) -> tuple[float, bool, bool, float, int, int, int, int]:
        turn = state.served.chunks.get(job.owner, BEFORE)
        overdue = now - job.last_served >= policy.start_wait
        forgotten = now - groups[job.group] >= policy.start_wait  # its whole request
        waited = job.last_served if overdue else 0.0
        length = job.remaining if policy.whole else 0
        place = job.priority, places[job.id], length, job.order
        return turn, not forgotten, not overdue, waited, *place

    return sorted(jobs, key=urgency)


def _with_background(
    jobs: list[PendingPrompt], seconds: float, state: State, policy: Policy, *, live: bool
) -> tuple[list[PendingPrompt], float, bool]:
    """Who may run now, for how long, and whether that is work in the background beside live work:
    then its first chunk is small. live: whether live rows decode.
    """
    others = [job for job in jobs if job.background]
    first = [job for job in jobs if not job.background]
    if not others or not (first or live):
        return jobs, seconds, False
    # Of those that are overdue, who has waited longest is first, live or not.
    oldest = min(jobs, key=lambda job: (job.last_served, job.order))
    overdue = oldest.background and state.now - oldest.last_served >= policy.start_wait
    if first:
        return ([oldest, *first], seconds, True) if overdue else (first, seconds, False)
    share = min(seconds, BACKGROUND_SHARE * (state.now - state.served.background))
    least = min(others[0].remaining, policy.least_chunk)
    if _affordable(share, state.costs, least, others[0].done) >= least:
        return others, share, False
    return ([oldest], seconds, True) if overdue else ([], seconds, False)


def _seconds_for_prompts(running: int, costs: Costs, policy: Policy) -> float:
    """Seconds that prompts may take between two decode steps; if nobody decodes, in a step."""
    if not running:
        return policy.start_wait / 2
    gap, (least, most) = policy.token_gap, _SPARE
    planned = min((1 - least) * gap, max((1 - most) * gap, gap - costs.late))
    longest = planned - costs.decode_step
    if not policy.decode_waits or not costs.decode_step:
        return longest
    # To read the weights takes as long for one row as for a pass of prompts.
    return min(longest, DECODE_WORTH * max(costs.decode_step, costs.prefill_pass))


def _can_wait(
    chunks: tuple[Chunk, ...], jobs: Sequence[PendingPrompt], seconds: float, costs: Costs
) -> bool:
    """Whether `seconds` are enough for these chunks before the next decode step."""
    if not chunks or not costs.prefill_token:
        return False
    return _seconds_of(chunks, jobs, costs) <= seconds


def _seconds_of(chunks: Sequence[Chunk], jobs: Sequence[PendingPrompt], costs: Costs) -> float:
    done = {job.id: job.done for job in jobs}
    return sum(_seconds(chunk, done[chunk.job], costs) for chunk in chunks)


def _seconds(chunk: Chunk, done: int, costs: Costs) -> float:
    return costs.prompt(chunk.tokens, done, packed=chunk.packed)


def _chunks(
    jobs: list[PendingPrompt],
    seconds: float,
    costs: Costs,
    memory: Memory | None,
    policy: Policy,
    *,
    alone: bool,
    small: bool,
) -> tuple[Chunk, ...]:
    """Whole prompts while they fit; a piece of one only if it is worth a pass of its own.

    The first one is served in any case, with `least_chunk` tokens if need be. small: with no more.
    alone: no row and no other prompt is there.
    """
    chunks: list[Chunk] = []
    budget = policy.prefill_chunk if alone else min(policy.prefill_chunk, _BESIDE_OTHERS)
    if not costs.prefill_token + costs.prefill_pass:
        budget = min(budget, max(_UNMEASURED, policy.least_chunk))
    shared = _Pass(policy, memory, costs)
    for job in jobs:
        padding = shared.padding_for(job) * costs.per_token(0, job.done)
        with_others = seconds + costs.prefill_pass - padding
        # Only whole: what is left of it would come later, in a pass of its own.
        packed = shared.has_room_for(job) and job.remaining <= min(
            budget, _affordable(with_others, costs, budget, job.done)
        )
        own = with_others if packed else seconds
        wanted = min(job.remaining, budget, _affordable(own, costs, budget, job.done))
        if small and not chunks:
            wanted = 0
        tokens = _fitting(wanted, job, chunks, memory, policy)
        if policy.whole and tokens < job.remaining:
            if chunks:
                break
            tokens = job.remaining
        if chunks and (
            own < costs.prefill_pass or (tokens < job.remaining and tokens < policy.least_chunk)
        ):
            break
        chunk = Chunk(job.id, tokens, packed and tokens == job.remaining)
        chunks.append(chunk)
        shared.take(chunk, job)
        budget -= tokens
        seconds -= _seconds(chunk, job.done, costs) + (padding if chunk.packed else 0.0)
    return tuple(chunks)


def _fitting(
    tokens: int,
    job: PendingPrompt,
    before: Sequence[Chunk],
    memory: Memory | None,
    policy: Policy,
) -> int:
    """As many tokens of a prompt as a chunk may have, behind those of this step so far."""
    if tokens < job.remaining:
        tokens = _even(tokens)
    if not before:
        tokens = max(tokens, min(job.remaining, policy.least_chunk, policy.prefill_chunk))
    if memory is None:
        return tokens
    # All of a step may be on its way at once.
    others, least = sum(chunk.tokens for chunk in before), 0 if before else policy.least_chunk
    chunk = memory.chunk(others + tokens, least, job.done + tokens, logits=job.logits)
    return max(0, chunk - others)


class _Pass:
    """A forward pass that several short prompts may share, each padded to the longest.

    What a prompt would cost by a pass of its own is saved, and its padding must not cost more.
    """

    def __init__(self, policy: Policy, memory: Memory | None, costs: Costs):
        self._policy, self._memory = policy, memory
        known = costs.prefill_token
        self._worth = costs.prefill_pass / known if known else _WORTH  # tokens of padding
        self._rows = self._tokens = self._context = 0
        self._longest = self._widest = 0  # of its prompts: new tokens, and what is run for them

    def has_room_for(self, job: PendingPrompt) -> bool:
        if not self._rows or not self._short(job):
            return False
        tokens = (self._rows + 1) * max(self._longest, job.remaining)
        if tokens > self._policy.prefill_chunk:
            return False
        padding = tokens - self._tokens - job.remaining
        if self._policy.whole and tokens > _SMALL and padding > _PADDING * tokens:
            return False
        if not self._policy.whole and self.padding_for(job) > self._worth:
            return False
        context = max(self._context, job.done + job.remaining)
        rows = self._rows + 1
        wide = rows * max(self._widest, job.remaining, job.width)
        return self._memory is None or self._memory.chunk(wide, 1, context, rows) == wide

    def padding_for(self, job: PendingPrompt) -> int:
        """Tokens that are computed for nothing, if it comes in."""
        tokens = (self._rows + 1) * max(self._longest, job.remaining)
        return tokens - self._rows * self._longest - job.remaining

    def take(self, chunk: Chunk, job: PendingPrompt) -> None:
        if not chunk.packed:
            self._rows = self._tokens = self._context = self._longest = self._widest = 0
        if self._short(job) and chunk.tokens == job.remaining:
            self._rows += 1
            self._tokens += chunk.tokens
            self._longest = max(self._longest, chunk.tokens)
            self._widest = max(self._widest, chunk.tokens, job.width)
            self._context = max(self._context, job.done + chunk.tokens)

    def _short(self, job: PendingPrompt) -> bool:
        return job.packs and 0 < job.remaining <= self._policy.pack


def _even(tokens: int) -> int:
    """No more than these, and one of few numbers: for some devices each new one is something to be
    planned at length.
    """
    for even, least in _EVEN:
        if tokens >= least:
            return tokens - tokens % even
    return 1 << (tokens.bit_length() - 1) if tokens else 0


def _affordable(seconds: float, costs: Costs, most: int, done: int) -> int:
    """Tokens of one chunk that take no longer than `seconds`, at most `most`."""
    left, first = seconds - costs.prefill_pass, costs.per_token(0, done)
    if left <= 0:
        return 0
    if left >= most * costs.per_token(most, done):
        return most
    # left = tokens * (first + reach * tokens / 2), of which a later token costs more than the first
    reach = costs.prefill_reach
    return int(2 * left / (first + (first * first + 2 * reach * left) ** 0.5))
