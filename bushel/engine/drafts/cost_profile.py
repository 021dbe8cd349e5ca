"""What a pass costs on this machine, by rows and by tokens of each: measured once, at load.

It never changes afterwards. Depths that follow the clock would have two runs of one request differ
wherever the width of a pass changes its rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import mlx.core as mx

from bushel.cache import BatchState, take_snapshot
from bushel.engine.row_state import new_row
from bushel.models import Model
from bushel.models.mtp import HeadKVCache, MTPHead

_ROWS = (1, 4, 8, 16, 32)
_WIDTHS = (1, 2, 4, 8)  # Metal's attention for few queries ends at 8
_CONTEXT = 64  # tokens before those that are measured
_TURNS = 8  # at most, of each number of rows
_SECONDS_EACH = 0.5  # from which there are no more turns
_MOST_SECONDS = 1.5  # until no more is measured; larger batches then draft nothing


@dataclass(frozen=True)
class CostProfile:
    """seconds[rows - 1][width - 1] of a pass that is as wide; of width 1, of a plain step.

    drafting: seconds of the drafter for each token that it proposes to all rows.
    """

    seconds: tuple[tuple[float, ...], ...]
    drafting: float = 0.0

    @property
    def deepest(self) -> int:
        return len(self.seconds[0]) - 1

    def cost(self, rows: int, width: int) -> float:
        """Never less for more rows or tokens."""
        return self.seconds[rows - 1][width - 1] + (width - 1) * self.drafting

    @classmethod
    def fitted(cls, measured: Mapping[tuple[int, int], float], most_rows: int) -> CostProfile:
        """From seconds by (rows, width), with one row at least; straight lines in between.

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
        widths = sorted(width for rows, width in measured if rows == 1)
        counts = sorted({rows for rows, _ in measured})
        known = {
            rows: _line(widths, [measured[rows, width] for width in widths])
            for rows in counts
            if all((rows, width) in measured for width in widths)
        }
        last = max(known)
        columns = []
        for width in range(1, widths[-1] + 1):
            each = [known[rows][width - 1] for rows in known]
            beyond = [
                each[-1] * (rows / last if width > 1 else 1)
                for rows in range(last + 1, most_rows + 1)
            ]
            columns.append([*accumulate([*_line([*known], each), *beyond], max)])
        table = (accumulate(row, max) for row in zip(*columns, strict=True))
        return cls(tuple(map(tuple, table))[:most_rows])


def _line(at: Sequence[int], values: Sequence[float]) -> list[float]:
    """Values at each of at[0], at[0] + 1, ..., at[-1]."""
    points = [values[0]]
    for (low, left), (high, right) in pairwise(zip(at, values, strict=True)):
        steps = range(1, high - low + 1)
        points += [left + (right - left) * step / (high - low) for step in steps]
    return points


def measure(
    model: Model,
    make_rows: Callable[[], Any],
    most_rows: int,
    clock: Callable[[], float] = time.perf_counter,
) -> CostProfile:
    """make_rows: a fresh `BatchState` that takes drafts. The state is gone when this returns.

    In turns, and the shortest of each: whatever else the machine does makes passes longer, and
    never shorter.
    """
    measured: dict[tuple[int, int], float] = {}
    start = clock()
    for count in [rows for rows in _ROWS if rows <= most_rows]:
        began = clock()
        if began - start > _MOST_SECONDS:
            break
        rows = _filled(model, make_rows(), count)
        for turn in range(1 + _TURNS):
            if turn > 1 and clock() - began > _SECONDS_EACH:
                break
            for width in _WIDTHS:
                seconds = (_plain_step if width == 1 else _round)(model, rows, width, clock)
                if turn:  # the first one may have waited for what was compiled
                    place = count, width
                    measured[place] = min(seconds, measured.get(place, seconds))
    return CostProfile.fitted(measured, most_rows)


def _filled(model: Model, rows: Any, count: int) -> Any:
    """With so many rows of some tokens each."""
    state = new_row(model)
    mx.eval(model.forward(mx.zeros((1, _CONTEXT), mx.uint32), [0], state))
    snapshot = take_snapshot(state, _CONTEXT)
    rows.join_all([(snapshot.restore(new_row(model)), _CONTEXT) for _ in range(count)])
    return rows


def _plain_step(model: Model, rows: Any, width: int, clock: Callable[[], float]) -> float:
    """Started before the one before it has been read, as the engine does."""
    tokens = mx.zeros((len(rows), width), mx.uint32)
    pending: list[mx.array] = []
    start = 0.0
    for _ in range(3):
        start = clock()
        rows.reserve(width)
        logits = model.forward(tokens, rows.positions, rows.layers)
        rows.advance([width] * len(rows))
        tokens = mx.argmax(logits, axis=-1)
        mx.async_eval(tokens)
        pending.append(tokens)
        if len(pending) > 1:
            pending.pop(0).tolist()
    seconds = clock() - start
    mx.eval(tokens)
    return seconds


def _round(model: Model, rows: Any, width: int, clock: Callable[[], float]) -> float:
    """Half of the drafts hold: what goes back is part of the cost."""
    inputs = mx.zeros((len(rows), width), mx.uint32)
    start = clock()
    rows.reserve(width)
    rows.begin_draft([width] * len(rows))
    logits = model.forward(inputs, rows.positions, rows.layers)
    mx.argmax(logits, axis=-1).tolist()
    rows.end_draft([1 + width // 2] * len(rows))
    mx.eval(rows.settle())
    return clock() - start


def of_head(head: MTPHead, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that a prediction head takes for one more token of a row's draft."""
    cache, width = HeadKVCache(1), head.block.norm.weight.shape[0]
    hidden, token = mx.zeros((1, 1, width)), mx.zeros((1, 1), mx.uint32)
    shortest = math.inf
    for _ in range(_TURNS + 1):
        start = clock()
        logits = head.logits(head(hidden, token, [_CONTEXT], [0], cache))
        mx.argmax(logits, axis=-1).tolist()
        shortest = min(shortest, clock() - start)
    return shortest


def of_draft_model(draft: Model, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that a draft model takes for one more token of a row's draft."""
    rows = _filled(draft, BatchState(draft.make_state, drafts=True), 1)
    return min(_plain_step(draft, rows, 1, clock) for _ in range(_TURNS))
