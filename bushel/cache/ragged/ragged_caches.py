"""Keys and values in which every row has its own length: a model's caches.

    slots      0 1 2 3 4 5 6 7 8            token p of a row lies in slot p
    row 0      a b c d ? ?                  4 tokens; what lies behind them nobody sees, and the
    row 1      a b c d e f g                next tokens are written over it
    row 2      a b c d e f ? ?

A window keeps a ring: token p lies in slot p modulo the ring's size, which is that of the window
and SPARE more. A pass of W <= SPARE + 1 columns then writes over nothing that its first column
still sees, so that any of its columns can be forgotten by setting the length back.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from bushel.cache.ragged.row_lengths import RowLengths

SPARE = 32  # slots of a ring behind its window: the deepest draft
_STEP = 256  # tokens by which room grows, as that of the libraries' caches


class RaggedCache:
    """What both have in common: where the next tokens go, and which are seen."""

    # mlx-vlm's qwen3_5 cuts masks to `_idx` and the pass where a cache has both names, and waits
    # for the device to learn how far where it has not. No padding: None.
    left_padding = None

    def __init__(self, lengths: RowLengths, keys: Any = None, values: Any = None):
        self.lengths = lengths
        self.keys, self.values = keys, values  # [B, H, room, D]; None: the model writes none
        self._pass, self._ran = -1, 0

    @property
    def ran(self) -> int:
        """Columns of the present pass that are written."""
        return self._ran if self._pass == self.lengths.passes else 0

    @property
    def offset(self) -> mx.array | int:
        """Tokens of the row; of several rows [B]."""
        return self.lengths.offset(self.ran)

    @property
    def _idx(self) -> int:
        return self.slots_of(self.lengths.longest + self.ran)

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """Of all slots that any row sees."""
        used = self._idx
        return self.keys[:, :, :used], self.values[:, :, :used]

    @property
    def state(self) -> tuple[Any, Any]:
        return (None, None) if self.keys is None else self.keys_and_values()

    @state.setter
    def state(self, arrays: tuple[Any, Any]) -> None:
        self.keys, self.values = arrays

    def empty(self) -> bool:
        return self.keys is None

    def size(self) -> int:
        return self._idx

    def slots_of(self, tokens: int) -> int:
        """Slots that hold a row of so many."""
        return tokens

    def room_for(self, tokens: int) -> int:
        """Slots that are made when there are too few for so many."""
        return -(-tokens // _STEP) * _STEP

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        ran, count = self.ran, keys.shape[2]
        self._make_room(self.lengths.longest + ran + count, keys, values)
        self._write(ran, keys, values)
        self._pass, self._ran = self.lengths.passes, ran + count
        return self.keys_and_values()

    def _make_room(self, tokens: int, keys: mx.array, values: mx.array) -> None:
        there = 0 if self.keys is None else self.keys.shape[2]
        if there >= self.slots_of(tokens):
            return
        more = self.room_for(tokens) - there
        rows, heads, _, dim = keys.shape
        fresh = mx.zeros((rows, heads, more, dim), keys.dtype)
        fresh_values = mx.zeros((rows, heads, more, values.shape[3]), values.dtype)
        if there:
            fresh = mx.concatenate([self.keys, fresh], axis=2)
            fresh_values = mx.concatenate([self.values, fresh_values], axis=2)
        self.keys, self.values = fresh, fresh_values

    def _write(self, ran: int, keys: mx.array, values: mx.array) -> None:
        raise NotImplementedError

    def _scatter(self, slots: mx.array, keys: mx.array, values: mx.array) -> None:
        """slots: [B, 1, W, 1]. In place, where nobody else holds the arrays (8 rows of 8 heads and
        2,048 slots of 128 numbers, CPU: 0.2 ms; by indices of both axes 0.4).
        """
        self.keys = mx.put_along_axis(self.keys, slots, keys, axis=2)
        self.values = mx.put_along_axis(self.values, slots, values, axis=2)


class RaggedKVCache(RaggedCache):
    """Every token stays visible."""

    def __init__(
        self, lengths: RowLengths, keys: Any = None, values: Any = None, *, grouped: bool = False
    ):
        """grouped: masks have an axis for the query heads of a group."""
        super().__init__(lengths, keys, values)
        self.grouped = grouped

    def _write(self, ran: int, keys: mx.array, values: mx.array) -> None:
        count = keys.shape[2]
        if self.lengths.alone:
            start = self.lengths.tokens[0] + ran
            self.keys[:, :, start : start + count] = keys
            self.values[:, :, start : start + count] = values
            return
        slots = self.lengths.positions(ran, count)[:, None, :, None]
        self._scatter(slots, keys, values)

    def make_mask(
        self, N: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None:
        ran, lengths = self.ran, self.lengths
        slots = lengths.longest + ran + N
        if lengths.alone and not return_array and (window_size is None or slots <= window_size):
            return "causal" if N > 1 else None

        def make() -> mx.array:
            seen = mx.arange(slots)
            queries = lengths.positions(ran, N)[:, None, :, None]
            mask = seen <= queries
            return mask if window_size is None else mask & (seen > queries - window_size)

        mask = lengths.once(("mask", ran, N, window_size), make)
        return mx.expand_dims(mask, 2) if self.grouped else mask


class RaggedWindowCache(RaggedCache):
    """The last `max_size` tokens of a row are visible to the next."""

    def __init__(self, lengths: RowLengths, max_size: int, keys: Any = None, values: Any = None):
        super().__init__(lengths, keys, values)
        self.max_size = max_size
        self.ring = max_size + SPARE

    def slots_of(self, tokens: int) -> int:
        return min(tokens, self.ring)

    def room_for(self, tokens: int) -> int:
        return min(super().room_for(tokens), self.ring)

    def _write(self, ran: int, keys: mx.array, values: mx.array) -> None:
        count, lengths = keys.shape[2], self.lengths
        start = (lengths.tokens[0] + ran) % self.ring
        if lengths.alone and start + count <= self.ring:
            self.keys[:, :, start : start + count] = keys
            self.values[:, :, start : start + count] = values
            return
        slots = lengths.once(
            ("ring", self.ring, ran, count),
            lambda: (lengths.positions(ran, count) % self.ring)[:, None, :, None],
        )
        self._scatter(slots, keys, values)

    def make_mask(
        self, N: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array | str | None:
        ran, lengths = self.ran, self.lengths
        window = min(window_size or self.max_size, self.max_size)
        end = lengths.longest + ran + N
        if lengths.alone and not return_array and end <= window:
            return "causal" if N > 1 else None

        def make() -> mx.array:
            mask = np.zeros((len(lengths.tokens), 1, N, self.slots_of(end)), np.bool_)
            for row, tokens in enumerate(lengths.tokens):
                for column in range(N):
                    self._show(mask[row, 0, column], tokens + ran + column, window)
            return mx.array(mask)

        return lengths.once(("ring mask", self.ring, window, ran, N), make)

    def _show(self, slots: np.ndarray, last: int, window: int) -> None:
        """The tokens that the one at `last` sees: a range of slots, or two."""
        first, behind = max(0, last - window + 1) % self.ring, last % self.ring + 1
        if first < behind:
            slots[first:behind] = True
        else:
            slots[:behind] = True
            slots[first:] = True
