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

import mlx.core as mx

from bushel.cache import BatchState, take_snapshot
from bushel.cache.paged.attention import PARTITION
from bushel.engine.row_state import new_row
from bushel.models import Model
from bushel.models.device import ON_CPU
from bushel.models.mtp import HeadKVCache, MTPHead

# Of all rows together in one pass, each of which is as wide as the widest.
MOST_DRAFTS = 64
_ROWS = (1, 4, 8, 16, 32)
_WIDTHS = (1, 2, 4, 8)  # Metal's attention for few queries ends at 8
_SEVERAL = (1, 8, 32)  # rows for which drafters are measured
_CONTEXT = 64  # tokens before those that are measured
_STEPS = 2  # of a turn that are plain
_TURNS = 8  # at most, of each number of rows
_HEAD_TURNS = 5  # of a head, for each number of rows
_SECONDS_EACH = 0.25  # after which a number of rows has no more turns
_MOST_SECONDS = 3.0  # after which no more rows are measured: larger batches then draft nothing


Drafting = tuple[float, ...]  # seconds of a drafter for a token of every row, by rows - 1


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
            rows: _line(
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
            columns.append([*accumulate([*_line(each, last), *beyond], max)])
        table = (accumulate(row, max) for row in zip(*columns, strict=True))
        return cls(tuple(map(tuple, table))[:most_rows])


def _line(values: Mapping[int, float], end: int) -> list[float]:
    """Values at 1, 2, ... end, from some of them in order: straight in between, and beyond."""
    points, slope = [values[1]], 0.0
    for low, high in pairwise(values):
        slope = (values[high] - values[low]) / (high - low)
        points += [values[low] + slope * step for step in range(1, high - low + 1)]
    return points + [points[-1] + slope * more for more in range(1, end - len(points) + 1)]


def measure(
    model: Model,
    make_rows: Callable[[], BatchState],
    most_rows: int,
    clock: Callable[[], float] = time.perf_counter,
) -> CostProfile:
    """make_rows: a fresh `BatchState` that takes drafts. The state is gone when this returns.

    In turns, and the shortest of each: whatever else the machine does makes passes longer, and
    never shorter.
    """
    measured: dict[tuple[int, int], float] = {}
    if not ON_CPU:
        _compile(model, make_rows)
    spent = 0.0
    for count in [rows for rows in _ROWS if rows <= most_rows]:
        if spent > _MOST_SECONDS:
            break
        rows = _filled(model, make_rows(), count)
        widths = [width for width in _WIDTHS if count * (width - 1) <= MOST_DRAFTS]
        if count == 1 or not ON_CPU:
            _turn(model, rows, widths, clock)  # may wait for what is compiled
        began = clock()
        for turn in range(_TURNS):
            if turn and clock() - began > _SECONDS_EACH:
                break
            for width, seconds in _turn(model, rows, widths, clock).items():
                place = count, width
                measured[place] = min(seconds, measured.get(place, seconds))
        spent += clock() - began
    return CostProfile.fitted(measured, most_rows)


def _turn(
    model: Model, rows: BatchState, widths: Sequence[int], clock: Callable[[], float]
) -> dict[int, float]:
    """Seconds of a pass of each of these widths."""
    return {
        width: _round(model, rows, width, clock) if width > 1 else _plain_step(model, rows, clock)
        for width in widths
    }


def _compile(model: Model, make_rows: Callable[[], BatchState]) -> None:
    """Run every width once, in a short row and in one of several partitions: an accelerator
    compiles kernels for each, and no reply is to wait for that.
    """
    for context in (_CONTEXT, _CONTEXT + PARTITION):
        rows = _filled(model, make_rows(), 1, context)
        for width in range(1, _WIDTHS[-1] + 1):
            _round(model, rows, width, time.perf_counter)


def _filled(model: Model, rows: BatchState, count: int, context: int = _CONTEXT) -> BatchState:
    """With so many rows of some tokens each."""
    state = new_row(model)
    mx.eval(model.forward(mx.zeros((1, context), mx.uint32), [0], state))
    snapshot = take_snapshot(state, context)
    rows.join_all([(snapshot.restore(new_row(model)), context) for _ in range(count)])
    return rows


def _plain_step(model: Model, rows: BatchState, clock: Callable[[], float]) -> float:
    """Each is started before the one before it has been read, as the engine does."""
    token = mx.zeros((len(rows), 1), mx.uint32)
    start, before = 0.0, token
    for step in range(2 + _STEPS):
        if step == 2:
            start = clock()
        rows.reserve(1)
        logits = model.forward(token, rows.positions, rows.layers)
        rows.advance([1] * len(rows))
        before, token = token, mx.argmax(logits, axis=-1)
        mx.async_eval(token)
        before.tolist()
    seconds = (clock() - start) / _STEPS
    mx.eval(token)
    return seconds


def _round(model: Model, rows: BatchState, width: int, clock: Callable[[], float]) -> float:
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


def of_head(
    head: MTPHead, most_rows: int, clock: Callable[[], float] = time.perf_counter
) -> Drafting:
    """Seconds that a prediction head takes for one more token of every row's draft."""
    norm = head.block.norm.weight

    def one(count: int) -> float:
        cache, shortest = HeadKVCache(count), math.inf
        hidden = mx.zeros((count, 1, norm.size), norm.dtype)
        tokens = mx.zeros((count, 1), mx.uint32)
        for _ in range(_HEAD_TURNS):
            start = clock()
            logits = head.logits(head(hidden, tokens, [_CONTEXT] * count, [0] * count, cache))
            mx.argmax(logits, axis=-1).tolist()
            shortest = min(shortest, clock() - start)
        return shortest

    return _by_rows(one, most_rows)


def of_draft_model(
    draft: Model, most_rows: int, clock: Callable[[], float] = time.perf_counter
) -> Drafting:
    """Seconds that a draft model takes for one more token of every row's draft."""

    def one(count: int) -> float:
        rows = _filled(draft, BatchState(draft.make_state, drafts=True), count)
        return min(_plain_step(draft, rows, clock) for _ in range(_TURNS))

    return _by_rows(one, most_rows)


def _by_rows(one: Callable[[int], float], most_rows: int) -> Drafting:
    """Of one row and of several; straight in between, and beyond."""
    several = {rows: one(rows) for rows in sorted({min(rows, most_rows) for rows in _SEVERAL})}
    return tuple(accumulate(_line(several, most_rows), max))
