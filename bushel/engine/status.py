"""How an engine is doing, for whoever asks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bushel.cache import BatchState
from bushel.cache.prefix import PrefixCache
from bushel.engine import footprint
from bushel.engine.sequence import Phase, Sequence


def describe_rows(
    sequences: Collection[Sequence], prefilled: Mapping[Sequence, int]
) -> dict[str, Any]:
    """prefilled: tokens, of those whose prompts run."""
    waiting = sum(sequence.phase is Phase.WAITING for sequence in sequences)
    return {
        "running": len(sequences) - waiting,
        "waiting": waiting,
        "requests": [sequence.report(prefilled.get(sequence)) for sequence in sequences],
    }


def describe_memory(rows: BatchState, promised: Mapping[str, int]) -> dict[str, int]:
    return {
        **footprint.in_use(),
        "state_bytes": rows.nbytes,
        "state_buffers": rows.buffers,
        **promised,
    }


def describe_cache(prefixes: PrefixCache | None, why_off: str) -> dict[str, Any]:
    return {"on": False, "why": why_off} if prefixes is None else {"on": True, **prefixes.stats()}
