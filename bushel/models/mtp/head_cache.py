"""Keys and values of a prediction head's layer, for rows of different lengths.

    row 0    a b c d e | x y .      kept, and behind it what a draft writes for a while
    row 1    a b | x y . . . .
    slots    0 1 2 3 4 5 6 7 …

A row's tokens stand in slots of its own from the first on, wherever its text begins. Going back is
a matter of lengths: what lies behind them is seen by nobody, and written over.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

_STEP = 256  # slots that are added at once, as the libraries' caches grow


class HeadKVCache:
    """Owned by one drafter. A layer uses it as it does its library's own."""

    def __init__(self) -> None:
        self.lengths: list[int] = []  # slots that are kept, of each row
        self.keys: mx.array | None = None  # [B, heads, slots, D]
        self.values: mx.array | None = None
        self.offset = mx.array([0])  # rotary positions of the first token of a pass: [B]
        self._starts: list[int] = []  # slots that it is written to
        self._width = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def begin(self, starts: Sequence[int], positions: Sequence[int], width: int) -> None:
        """A pass of so many tokens in each row follows, from these slots and positions on."""
        self._starts, self._width = list(starts), width
        self.offset = mx.array(list(positions))

    @property
    def _end(self) -> int:
        """Slots that a pass looks at."""
        return max(self._starts) + self._width

    @property
    def _even(self) -> bool:
        return len(set(self._starts)) == 1

    # mlx-vlm cuts masks to the offset that it finds, unless a cache has these two.
    left_padding = None

    @property
    def _idx(self) -> int:
        return self._end - self._width

    def mask(self) -> mx.array | None:
        """True where a token looks: [B, 1, width, slots]; None if all look at all."""
        if self._even and self._width == 1:
            return None
        starts = self._starts[:1] if self._even else self._starts
        here = mx.array(starts)[:, None, None] + mx.arange(self._width)[:, None]
        return (mx.arange(self._end) <= here)[:, None]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.keys = self._written(self.keys, keys)
        self.values = self._written(self.values, values)
        return self.keys[:, :, : self._end], self.values[:, :, : self._end]

    def _written(self, held: mx.array | None, fresh: mx.array) -> mx.array:
        held = self._with_room(held, fresh)
        if self._even:
            held[:, :, self._starts[0] : self._end] = fresh
            return held
        rows = mx.arange(len(self._starts))[:, None]
        slots = mx.array(self._starts)[:, None] + mx.arange(self._width)
        held[rows, :, slots] = fresh.transpose(0, 2, 1, 3)
        return held

    def _with_room(self, held: mx.array | None, fresh: mx.array) -> mx.array:
        slots = -(-self._end // _STEP) * _STEP
        rows, heads, _, dim = fresh.shape
        if held is None:
            return mx.zeros((rows, heads, slots, dim), fresh.dtype)
        more = slots - held.shape[2]
        return held if more <= 0 else mx.pad(held, [(0, 0), (0, 0), (0, more), (0, 0)])

    def join(self, rows: int) -> None:
        """So many rows come, of whom nothing is known."""
        self.lengths += [0] * rows
        for name in ("keys", "values"):
            held = getattr(self, name)
            if held is not None:
                setattr(self, name, mx.pad(held, [(0, rows), (0, 0), (0, 0), (0, 0)]))

    def leave(self, keep: Sequence[int]) -> None:
        self.lengths = [self.lengths[row] for row in keep]
        if self.keys is None or self.values is None:
            return
        if not keep:
            self.keys = self.values = None
            return
        slots = -(-max(1, *self.lengths) // _STEP) * _STEP
        rows = mx.array(list(keep))
        self.keys, self.values = self.keys[rows, :, :slots], self.values[rows, :, :slots]

    @property
    def arrays(self) -> list[mx.array]:
        return [held for held in (self.keys, self.values) if held is not None]
