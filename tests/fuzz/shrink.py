"""The fewest acts of a workload that still go wrong, as far as a little time goes."""

from __future__ import annotations

import time
from collections.abc import Callable


def shrink(count: int, goes_wrong: Callable[[list[int]], bool], seconds: float) -> list[int]:
    """Which of `count` acts are needed: pieces are left out, ever smaller ones."""
    kept, size, end = list(range(count)), max(1, count // 2), time.monotonic() + seconds
    while time.monotonic() < end:
        before = len(kept)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if fewer and time.monotonic() < end and goes_wrong(fewer):
                kept = fewer
                break
        if len(kept) == before:
            if size == 1:
                break
            size = max(1, size // 2)
    return kept
