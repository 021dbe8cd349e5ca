"""What a pass costs on this machine, by rows and by tokens of each (measured by `profiling`).

It never changes while a model is served. Depths that follow the clock would have two runs of one
request differ wherever the width of a pass changes its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

# Of all rows together in one pass, each of which is as wide as the widest.
MOST_DRAFTS = 64

Drafting = tuple[float, ...]  # seconds of a drafter for a token of every row, by rows - 1


@dataclass(frozen=True)
class CostProfile:
    """seconds[rows - 1][width - 1] of a pass that is as wide; of width 1, of a plain step.

    drafting: seconds of the drafter for each token that it proposes to all rows.

    context_tokens: that the pass attends to, of all rows together, and
    seconds_per_context_token[width - 1] what each of them adds.
    """

    seconds: tuple[tuple[float, ...], ...]
    drafting: float = 0.0
    seconds_per_context_token: tuple[float, ...] = ()
    context_tokens: int = 0

    @property
    def deepest(self) -> int:
        return len(self.seconds[0]) - 1

    def cost(self, rows: int, width: int) -> float:
        """Never less for more rows or tokens."""
        each = self.seconds_per_context_token
        context = self.context_tokens * each[width - 1] if each else 0.0
        return self.seconds[rows - 1][width - 1] + context + (width - 1) * self.drafting

    def with_long_context(self, more: Mapping[int, float], tokens: int) -> CostProfile:
        """more: seconds by width that a pass of one row takes more, with a context that is so many
        tokens longer. It bounds what narrower ones take more, like all that passes take.
        """
        bounds, least = dict[int, float](), math.inf
        for width in sorted(more, reverse=True):
            least = min(least, more[width])
            bounds[width] = max(0.0, least) / tokens
        each = straight(dict(sorted(bounds.items())), 1 + self.deepest)
        return replace(self, seconds_per_context_token=tuple(each))

    @classmethod
    def fitted(cls, measured: Mapping[tuple[int, int], float], most_rows: int) -> CostProfile:
        """From seconds by (rows, width), with one row at least; straight lines in between, and on
        to widths that were measured of fewer rows.

        Of more rows than were measured, plain steps are taken to cost no more, and other passes as
        many times more as there are more rows: nothing is drafted where nobody knows that it pays.
        What a pass takes is an upper bound for narrower ones and for fewer rows.
        """
        measured = {
            (rows, width): min(
                seconds
                for (more, wider), seconds in measured.items()
                if more >= rows and wider >= width
            )
            for rows, width in measured
        }
        widest = max(width for _, width in measured)
        known = {
            rows: straight(
                {width: measured[at, width] for at, width in measured if at == rows}, widest
            )
            for rows in sorted({rows for rows, width in measured if width > 1})
        }
        last = max(known)
        columns = []
        for width in range(1, widest + 1):
            each = {rows: line[width - 1] for rows, line in known.items()}
            beyond = [
                each[last] * (rows / last if width > 1 else 1)
                for rows in range(last + 1, most_rows + 1)
            ]
            columns.append([*accumulate([*straight(each, last), *beyond], max)])
        table = (accumulate(row, max) for row in zip(*columns, strict=True))
        return cls(tuple(map(tuple, table))[:most_rows])


def straight(values: Mapping[int, float], end: int) -> list[float]:
    """Values at 1, 2, ... end, from some of them in order: straight in between, and beyond."""
    points, slope = [values[1]], 0.0
    for low, high in pairwise(values):
        slope = (values[high] - values[low]) / (high - low)
        points += [values[low] + slope * step for step in range(1, high - low + 1)]
    return points + [points[-1] + slope * more for more in range(1, end - len(points) + 1)]
