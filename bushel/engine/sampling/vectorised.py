"""Choosing tokens with MLX's own operations: one vectorised call per group of alike rows.

Rows are sorted by their settings into a few groups (`draw.route`). Arrays that describe the
rows are built when the rows change, not per step. Along a draft every place of a row is a row of
its own, with the same settings: one call draws them all.
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


def _group(
    route: draw.Route, rows: list[Decoding], at: list[int], take: mx.array | slice | None
) -> _Group:
    tries = max(draw.tries_for(row) for row in rows) if route == "wide" else 1
    return _Group(_DRAW[route], at, take, _settings(route, rows), tries)


def _held(logits: mx.array, turn: SamplingStep) -> mx.array:
    """Logits without the tokens that masks forbid."""
    masks = turn.masks
    return logits if masks is None else _hold(logits, masks.words, masks.slots)


@dataclass(frozen=True)
class _Layout:
    """How the tokens of all places are drawn: row i's are the width that begin at i * width."""

    groups: list[_Group]
    order: mx.array  # which of the groups' tokens, end to end, is a place's
    appended: mx.array | None  # all places and the penalised ones again, if those are not all


class VectorisedChooser:
    """A `Chooser` (see `chooser`) for any device."""

    def __init__(self, vocab: int):
        self.rows: list[Decoding] = []
        self.penalties = Penalties(vocab)
        self._block_start = np.zeros(0, np.int64)  # the positions that _block begins at
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
        held = _held(logits[:, 0], turn)
        penalised = self.penalties.apply(held, turn.inputs[:, 0], turn.indices)
        return self._drawn(held, penalised, turn)

    def tokens_along(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        held = _held(logits.reshape(-1, logits.shape[2]), turn)
        penalised = self.penalties.apply_along(held, turn.inputs, turn.indices)
        return self._drawn(held, penalised, turn)

    def keep(self, kept: Sequence[int]) -> None:
        self.penalties.keep(kept)

    def _drawn(self, logits: mx.array, penalised: mx.array | None, turn: SamplingStep) -> mx.array:
        """Tokens [B, W] from logits [B * W, V] and those of penalised rows, after penalties."""
        width = turn.inputs.shape[1]
        layout = self._layout(width)
        if penalised is not None:
            some = layout.appended is not None
            both = [logits.astype(mx.float32), penalised]
            logits = mx.concatenate(both) if some else penalised
        if turn.bias is not None:
            bias = turn.bias if layout.appended is None else turn.bias[layout.appended]
            logits = logits.astype(mx.float32) + bias
        u = self._uniforms(turn.positions, width) if self._random else None
        parts = [group.tokens(logits, u) for group in layout.groups]
        tokens = parts[0] if len(parts) == 1 else mx.concatenate(parts)[layout.order]
        return tokens.astype(mx.uint32).reshape(-1, width)

    def _uniforms(self, positions: Sequence[int], width: int) -> np.ndarray:
        """[B * W, 2, TRIES], made a block of positions at a time."""
        step = np.array(positions) - self._block_start
        if step.min() < 0 or step.max() + width > _BLOCK:
            seeds = [row.seed for row in self.rows]
            self._block = draw.uniforms(seeds, positions, max(_BLOCK, width))
            self._block_start, step = np.array(positions), np.zeros_like(step)
        ahead = step[:, None] + np.arange(width)
        numbers: np.ndarray = self._block[ahead, np.arange(len(step))[:, None]]
        return numbers.reshape(-1, *numbers.shape[2:])

    def _arrange(self) -> None:
        self._block_start = np.full(len(self.rows), _NO_LIMIT)
        self._random = any(draw.route(row) != "greedy" for row in self.rows)
        self._layouts: dict[int, _Layout] = {}

    def _layout(self, width: int) -> _Layout:
        known = self._layouts.get(width)
        if known is not None:
            return known
        rows = [row for row in self.rows for _ in range(width)]
        count, columns = len(rows), range(width)
        penalised = [at * width + column for at in self.penalties.rows for column in columns]
        some = 0 < len(penalised) < count
        places = {at: count + own for own, at in enumerate(penalised)} if some else {}
        together: dict[tuple[draw.Route, bool], list[int]] = {}
        for at, row in enumerate(rows):
            together.setdefault(_company(row), []).append(at)
        groups: list[_Group] = []
        for (name, _), mine in together.items():
            everyone = len(mine) == count and not some
            take = None if everyone else rows_at([places.get(at, at) for at in mine])
            groups.append(_group(name, [rows[at] for at in mine], mine, take))
        order = np.argsort([at for group in groups for at in group.rows]).astype(np.uint32)
        appended = mx.array([*range(count), *penalised]) if some else None
        layout = self._layouts[width] = _Layout(groups, mx.array(order), appended)
        return layout

    def check_integrity(self) -> None:
        self.penalties.check_integrity()
        penalised = [at for at, row in enumerate(self.rows) if row.reworked]
        if self.penalties.rows != penalised:
            raise IntegrityError(f"penalties of rows {self.penalties.rows}, not {penalised}")
