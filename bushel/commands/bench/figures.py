"""What was seen of one request, and what many of them come to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True)
class RequestTimes:
    """Seconds are those since the first request of its cell. error: empty if it was answered."""

    start: float
    end: float
    times: list[float] = field(default_factory=list)  # when something of the reply came
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str = ""

    @property
    def first(self) -> float | None:
        return self.times[0] - self.start if self.times else None

    @property
    def per_token(self) -> float | None:
        """Of each token after the first, on average: one piece of a stream may hold several."""
        if len(self.times) < 2 or self.output_tokens < 2:
            return None
        return (self.times[-1] - self.times[0]) / (self.output_tokens - 1)

    @property
    def largest_gap(self) -> float | None:
        return max((later - time for time, later in pairwise(self.times)), default=None)


@dataclass(frozen=True)
class Cell:
    """One place of a sweep."""

    concurrency: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class CellRun:
    """One cell, once. seconds: until the last answer; interrupted: not all were asked."""

    cell: Cell
    round: int
    seconds: float
    requests: list[RequestTimes]
    interrupted: bool = False


@dataclass(frozen=True)
class CellFigures:
    """Times in seconds; None where there is nothing to tell."""

    requests: int  # that were answered
    errors: int
    counted_prompt: float | None  # tokens of the middle one, as the server counted them
    cached_tokens: int
    requests_per_second: float
    output_per_second: float
    total_per_second: float
    first_p50: float | None
    first_p95: float | None
    gap_p50: float | None
    gap_p95: float | None
    largest_gap: float | None


def percentile(values: Sequence[float], percent: float) -> float:
    """By linear interpolation; not a number if there are none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def figures(runs: Sequence[CellRun]) -> CellFigures:
    """Of rounds of one cell together."""
    requests = [one for run in runs for one in run.requests]
    answered = [one for one in requests if not one.error]
    seconds = sum(run.seconds for run in runs)
    output = sum(one.output_tokens for one in answered)
    total = output + sum(one.prompt_tokens for one in answered)
    firsts = _known([one.first for one in answered])
    gaps = _known([one.per_token for one in answered])

    def rate(count: int) -> float:
        return count / seconds if seconds else 0.0

    def at(values: list[float], percent: float) -> float | None:
        return percentile(values, percent) if values else None

    return CellFigures(
        requests=len(answered),
        errors=len(requests) - len(answered),
        counted_prompt=statistics.median(one.prompt_tokens for one in answered)
        if answered
        else None,
        cached_tokens=sum(one.cached_tokens for one in answered),
        requests_per_second=rate(len(answered)),
        output_per_second=rate(output),
        total_per_second=rate(total),
        first_p50=at(firsts, 50),
        first_p95=at(firsts, 95),
        gap_p50=at(gaps, 50),
        gap_p95=at(gaps, 95),
        largest_gap=max(_known([one.largest_gap for one in answered]), default=None),
    )
