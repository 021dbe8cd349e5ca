"""How an engine is doing, for whoever asks (`core.status`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec

from bushel.cache import BatchState
from bushel.cache.prefix import PrefixCache
from bushel.core.status import (
    CacheStatus,
    MemoryStatus,
    PassCosts,
    RequestStatus,
    SpeculationStatus,
)
from bushel.engine import device_memory
from bushel.engine.drafts.cost_profile import CostProfile
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.prefill import Prefill
from bushel.engine.sequence import Sequence


def describe_requests(
    sequences: Iterable[Sequence], prefilling: Iterable[Prefill]
) -> list[RequestStatus]:
    done = {sequence: job.done for job in prefilling for sequence in job.sequences}
    return [_describe_request(sequence, done.get(sequence)) for sequence in sequences]


def _describe_request(sequence: Sequence, prefilled: int | None) -> RequestStatus:
    """prefilled: tokens, while its prompt runs."""
    prompt = len(sequence.request.prompt.ids)
    if prefilled is None:
        prefilled = prompt if sequence.tokens else 0
    return RequestStatus(
        id=sequence.request.id,
        choice=sequence.choice,
        phase=str(sequence.phase),
        prompt_tokens=prompt,
        prefilled_tokens=prefilled,
        completion_tokens=len(sequence.tokens),
        cached_tokens=sequence.reuse.position,
        hit=sequence.reuse.hit,
        why=sequence.reuse.why,
    )


def describe_memory(rows: BatchState, promised: Mapping[str, int]) -> MemoryStatus:
    return MemoryStatus(
        **device_memory.in_use(), state_bytes=rows.nbytes, state_buffers=rows.buffers, **promised
    )


def describe_cache(prefixes: PrefixCache | None, why_off: str) -> CacheStatus:
    if prefixes is None:
        return CacheStatus(why=why_off)
    return msgspec.convert({"on": True, **prefixes.stats()}, CacheStatus)


def describe_speculation(
    drafters: list[str], drafted: int, accepted: int, speculation: Speculation, why_fewer: str = ""
) -> SpeculationStatus:
    """drafted, accepted: tokens so far. why_fewer: what the last drafter that failed did."""
    profile = speculation.profile
    if not drafters:
        why_off = why_fewer or speculation.why_off or ""
        return SpeculationStatus(why_off=why_off, drafted=drafted, accepted=accepted)
    return SpeculationStatus(
        drafters=drafters,
        drafted=drafted,
        accepted=accepted,
        acceptance=round(accepted / drafted, 4) if drafted else 0.0,
        profile=[] if profile is None else _pass_costs(profile),
        ms_per_1000_context_tokens=_context_costs(profile),
        why_fewer=why_fewer or msgspec.UNSET,
    )


def _pass_costs(profile: CostProfile) -> list[PassCosts]:
    return [
        PassCosts(rows, _by_width(profile, 1e3, partial(profile.cost, rows)))
        for rows in _powers(len(profile.seconds))
    ]


def _context_costs(profile: CostProfile | None) -> dict[str, float] | msgspec.UnsetType:
    each = () if profile is None else profile.seconds_per_context_token
    if profile is None or not each:
        return msgspec.UNSET
    return _by_width(profile, 1e6, lambda width: each[width - 1])


def _by_width(profile: CostProfile, times: float, cost: Callable[[int], float]) -> dict[str, float]:
    return {str(width): round(times * cost(width), 3) for width in _powers(profile.deepest + 1)}


def _powers(most: int) -> list[int]:
    """1, 2, 4, ..."""
    return [1 << power for power in range(most.bit_length())]
