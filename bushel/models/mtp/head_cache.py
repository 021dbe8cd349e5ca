"""Keys and values of a prediction head's layer, for rows of different lengths.

    row 0    a b c d e | x y .      kept, and behind it what a draft writes for a while
    row 1    a b | x y . . . .
    slots    0 1 2 3 4 5 6 7 …

A row's tokens stand in slots of its own from the first on, wherever its text begins. Going back is
a matter of lengths: what lies behind them is seen by nobody, and written over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mlx.core as mx

from bushel.core import IntegrityError

_STEP = 256  # slots that are added at once, as the libraries' caches grow


class HeadKVCache:
    """A layer uses it as it does its library's own; `begin` comes before each pass."""

    def __init__(self, rows: int = 0) -> None:
        self.lengths = [0] * rows  # slots that are kept, of each row
        self.keys: mx.array | None = None  # [B, heads, slots, D]; None: of nobody anything
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

    def mask(self, *, as_array: bool) -> mx.array | str | None:
        """Of the pass: None if all look at all; True where a token looks, [B, 1, width, slots], or
        in a word where all rows are of one length.
        """
        if self._even and (self._width == 1 or not as_array):
            return "causal" if self._width > 1 else None
        starts = self._starts[:1] if self._even else self._starts
        here = mx.array(starts)[:, None, None] + mx.arange(self._width)[:, None]
        return (mx.arange(self._end) <= here)[:, None]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.keys = self._written(self.keys, keys)
        self.values = self._written(self.values, values)
        return self.keys[:, :, : self._end], self.values[:, :, : self._end]

    def _written(self, held: mx.array | None, fresh: mx.array) -> mx.array:
        if held is None:
            rows, heads, _, dim = fresh.shape
            held = mx.zeros((rows, heads, 0, dim), fresh.dtype)
        held = _with_slots(held, _rounded(self._end))
        if self._even:
            held[:, :, self._starts[0] : self._end] = fresh
            return held
        rows_of = mx.arange(len(self._starts))[:, None]
        slots = mx.array(self._starts)[:, None] + mx.arange(self._width)
        held[rows_of, :, slots] = fresh.transpose(0, 2, 1, 3)
        return held

    def join(self, others: Sequence[HeadKVCache]) -> None:
        """Their rows come behind those that are here; they stay as they are."""
        all_of = [self, *others]
        self.keys = _stacked([other.keys for other in all_of], [len(other) for other in all_of])
        self.values = _stacked([other.values for other in all_of], [len(other) for other in all_of])
        self.lengths = [length for other in all_of for length in other.lengths]

    def leave(self, keep: Sequence[int]) -> None:
        kept = self.rows(keep)
        self.lengths, self.keys, self.values = kept.lengths, kept.keys, kept.values

    def rows(self, some: Sequence[int]) -> HeadKVCache:
        """A copy of some rows, with no more room than they need."""
        copy = HeadKVCache()
        copy.lengths = [self.lengths[row] for row in some]
        if some and self.keys is not None and self.values is not None:
            slots, index = _rounded(max(copy.lengths)), mx.array(list(some))
            # Rows are cut before they are gathered: a view of all slots would hold them all.
            copy.keys, copy.values = (
                self.keys[:, :, :slots][index],
                self.values[:, :, :slots][index],
            )
        return copy

    def replace(self, rows: Mapping[int, HeadKVCache]) -> None:
        """Some rows are those of other caches of one row each from now on."""
        each = [rows[at] if at in rows else self.rows([at]) for at in range(len(self))]
        self.lengths, self.keys, self.values = [], None, None
        self.join(each)

    @property
    def arrays(self) -> list[mx.array]:
        return [held for held in (self.keys, self.values) if held is not None]

    def check_integrity(self) -> None:
        for held in self.arrays:
            if held.shape[0] != len(self) or held.shape[2] < max(self.lengths, default=0):
                raise IntegrityError(f"a head's state of {held.shape} for {self.lengths}")


def _rounded(slots: int) -> int:
    return -(-slots // _STEP) * _STEP


def _with_slots(held: mx.array, slots: int) -> mx.array:
    more = slots - held.shape[2]
    return held if more <= 0 else mx.pad(held, [(0, 0), (0, 0), (0, more), (0, 0)])


def _stacked(held: Sequence[mx.array | None], rows: Sequence[int]) -> mx.array | None:
    """Rows one below the other; of those that hold nothing, as many of zeros."""
    there = [array for array in held if array is not None]
    if not there:
        return None
    _, heads, _, dim = there[0].shape
    slots = max(array.shape[2] for array in there)
    return mx.concatenate(
        [
            mx.zeros((count, heads, slots, dim), there[0].dtype)
            if array is None
            else _with_slots(array, slots)
            for array, count in zip(held, rows, strict=True)
        ]
    )
