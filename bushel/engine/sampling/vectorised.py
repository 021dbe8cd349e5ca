"""Choosing tokens with MLX's own operations: one vectorised call per group of alike rows.

Rows are sorted by their settings into a few groups (`draw.route`). Arrays that describe the
rows are built when the rows change, not per step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, IntegrityError
from bushel.engine.sampling import draw, shaped
from bushel.engine.sampling.chooser import SamplingStep
from bushel.engine.sampling.penalties import Penalties, rows_at
from bushel.models.device import ON_CPU

# One fused computation each: op by op they are several times as many kernels.
_DRAW: dict[draw.Route, Callable[..., mx.array]] = {
    "greedy": lambda logits: mx.argmax(logits, axis=-1),
    "narrow": mx.compile(draw.narrow),
    "wide": mx.compile(draw.wide),
    "ranked": mx.compile(draw.ranked),
    "shaped_narrow": shaped.shaped_narrow,
    "shaped": shaped.shaped,
}
_hold = mx.compile(draw.hold)
_NO_LIMIT = 1 << 30  # a top_k beyond any vocabulary
# Steps of uniform numbers made at once: 25 small numpy calls, spread over so many steps.
_BLOCK = 32


def _column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values), dtype=mx.float32)[:, None, None]


@dataclass(frozen=True)
class _Group:
    """Rows that go through the same function, and their settings as its arguments."""

    draw: Callable[..., mx.array]
    rows: list[int]
    take: mx.array | slice | None  # None: all rows of the batch, in order
    settings: tuple[mx.array | None, ...]  # empty: needs no uniform numbers either
    tries: int  # how many draws' numbers

    def tokens(self, logits: mx.array, u: np.ndarray | None) -> mx.array:
        if self.take is not None:
            logits = logits[self.take]
        if u is None or not self.settings:
            return self.draw(logits)
        return self.draw(logits, mx.array(u[self.rows][:, :, : self.tries]), *self.settings)


def _company(row: Decoding) -> tuple[draw.Route, bool]:
    """Rows that are drawn in one call. How they are grouped changes no row's token.

    On a CPU work is dear and calls are cheap, so that only rows with a top_p pay for it; on a
    GPU it is the other way round.
    """
    route = draw.route(row)
    return route, ON_CPU and route == "wide" and row.top_p < 1


def _settings(route: draw.Route, rows: list[Decoding]) -> tuple[mx.array | None, ...]:
    """The arguments of a route's function, after the logits and the uniform numbers."""
    if route == "greedy":
        return ()
    scale = _column([1 / row.temperature for row in rows])
    least = _column([math.log(row.min_p) if row.min_p else -math.inf for row in rows])
    top_p = _column([row.top_p if row.top_p < 1 else 2.0 for row in rows])
    if route == "wide":
        nucleus = any(row.top_p < 1 for row in rows)
        return (
            scale,
            least if any(row.min_p for row in rows) else None,
            top_p if nucleus else None,
            _column([draw.tries_for(row) for row in rows]) if nucleus else None,
        )
    top_k = _column([row.top_k or _NO_LIMIT for row in rows])
    if route not in ("shaped", "shaped_narrow"):
        return scale, least, top_k, top_p
    return (
        scale,
        least,
        top_k,
        top_p,
        _column([row.top_n_sigma for row in rows]),
        _column([row.typical_p if row.typical_p < 1 else 2.0 for row in rows])
        if any(row.typical_p < 1 for row in rows)
        else None,
        _column([row.xtc_probability for row in rows]),
        _column([row.xtc_threshold for row in rows]),
    )


class VectorisedChooser:
    """A `Chooser` (see `chooser`) for any device."""

    def __init__(self, vocab: int):
        self.rows: list[Decoding] = []
        self.penalties = Penalties(vocab)
        self._block_start: list[int] = []  # the positions that _block begins at
        self._arrange()

    def join(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None:
        self.penalties.join(len(self.rows), row, prompt, reply)
        self.rows.append(row)
        self._arrange()

    def leave(self, keep: Sequence[int]) -> None:
        self.penalties.leave(keep)
        self.rows = [self.rows[row] for row in keep]
        self._arrange()

    def tokens(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        logits = logits[:, 0]
        if turn.masks is not None:
            logits = _hold(logits, turn.masks.words, turn.masks.slots)
        logits = self._penalised(logits, turn)
        if turn.bias is not None:
            bias = turn.bias if self._appended is None else turn.bias[self._appended]
            logits = logits.astype(mx.float32) + bias
        u = self._uniforms(turn.positions) if self._random else None
        parts = [group.tokens(logits, u) for group in self._groups]
        tokens = parts[0] if len(parts) == 1 else mx.concatenate(parts)[self._order]
        return tokens.astype(mx.uint32)[:, None]

    def _penalised(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        """Rows that are penalised come after all rows, if they are not all."""
        mine = self.penalties.apply(logits, turn.inputs[:, 0], turn.indices)
        if mine is None or self._appended is None:
            return logits if mine is None else mine
        return mx.concatenate([logits.astype(mx.float32), mine])

    def _uniforms(self, positions: Sequence[int]) -> np.ndarray:
        """[B, 2, TRIES], made a block of steps at a time, since rows move on together."""
        step = positions[0] - self._block_start[0] if self._block_start else _BLOCK
        if not 0 <= step < _BLOCK or [at + step for at in self._block_start] != list(positions):
            self._block = draw.uniforms([row.seed for row in self.rows], positions, _BLOCK)
            self._block_start, step = list(positions), 0
        block: np.ndarray = self._block[step]
        return block

    def _arrange(self) -> None:
        self._block_start = []
        self._random = any(draw.route(row) != "greedy" for row in self.rows)
        count, penalised = len(self.rows), self.penalties.rows
        some = 0 < len(penalised) < count
        self._appended = mx.array([*range(count), *penalised]) if some else None
        self._places = {at: at for at in range(count)}
        if some:
            self._places |= {at: count + own for own, at in enumerate(penalised)}
        together: dict[tuple[draw.Route, bool], list[int]] = {}
        for at, row in enumerate(self.rows):
            together.setdefault(_company(row), []).append(at)
        self._groups = [self._group(key[0], mine) for key, mine in together.items()]
        order = [at for group in self._groups for at in group.rows]
        self._order = mx.array(np.argsort(order).astype(np.uint32))

    def _group(self, name: draw.Route, rows: list[int]) -> _Group:
        mine = [self.rows[at] for at in rows]
        everyone = len(rows) == len(self.rows) and self._appended is None
        take = None if everyone else rows_at([self._places[at] for at in rows])
        tries = max(draw.tries_for(row) for row in mine) if name == "wide" else 1
        return _Group(_DRAW[name], rows, take, _settings(name, mine), tries)

    def check_integrity(self) -> None:
        self.penalties.check_integrity()
        penalised = [at for at, row in enumerate(self.rows) if row.reworked]
        if self.penalties.rows != penalised:
            raise IntegrityError(f"penalties of rows {self.penalties.rows}, not {penalised}")
