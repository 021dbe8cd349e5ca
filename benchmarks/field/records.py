"""What was seen of a load: every reply with its times, and figures of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bushel.commands.bench.figures import percentile

__all__ = ["Reply", "Run", "percentile", "spread"]


@dataclass
class Reply:
    due: float  # seconds after the start at which it was asked for
    times: list[float] = field(default_factory=list)  # when something of it came
    tokens: list[int] = field(default_factory=list)
    text: str = ""  # of a server's reply
    counted: int = 0  # tokens that a server says it made
    error: str = ""

    @property
    def made(self) -> int:
        return self.counted or len(self.tokens)

    @property
    def first(self) -> float:
        return self.times[0] - self.due

    @property
    def gap(self) -> float:
        """The longest wait after the first token."""
        return max((later - time for time, later in pairwise(self.times)), default=0.0)


@dataclass(frozen=True)
class Run:
    """One side, one load, once."""

    replies: list[Reply]
    seconds: float
    peak: int | None = None  # bytes
    longest_step: float = 0.0

    @property
    def speed(self) -> float:
        return sum(reply.made for reply in self.replies) / self.seconds

    @property
    def firsts(self) -> list[float]:
        return [reply.first for reply in self.replies if reply.times]

    @property
    def gaps(self) -> list[float]:
        return [reply.gap for reply in self.replies if reply.times]


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, and the quartiles beside it."""
    if not values:
        return (float("nan"),) * 3
    return statistics.median(values), percentile(values, 25), percentile(values, 75)
