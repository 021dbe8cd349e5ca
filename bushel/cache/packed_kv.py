"""Keys and values of several lone rows for one forward pass, in which each runs its own tokens.

    row 0    a b c d | e f g h      what stands left has run before; the pass runs what stands right
    row 1            | a b c .      what is beyond a row's end is seen by nobody before it
    row 2    a b     | c . . .

Every row keeps what is its own, where it would be had it run alone; what attention is given is put
together for the pass, and lengths differ by what a mask hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from bushel.cache.layer_kind import Layer


class PackedKVCache:
    """A layer of such a pass, as networks use it. counts: new tokens of each row."""

    def __init__(self, singles: Sequence[Layer], counts: Sequence[int]):
        self._singles, self._counts = singles, counts
        self._starts = [int(single.offset) for single in singles]
        self.offset = mx.array(self._starts)

    def make_mask(
        self, N: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array:
        """True where a token looks: [B, 1, N, T]."""
        at = mx.arange(max(self._starts) + N)
        here = mx.array(self._starts)[:, None, None] + mx.arange(N)[:, None]
        seen = at <= here
        if window_size is not None:
            seen = seen & (at > here - window_size)
        return seen[:, None]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        width = keys.shape[2]
        longest = max(self._starts) + width
        kept = [
            single.update_and_fetch(
                keys[row : row + 1, :, :count], values[row : row + 1, :, :count]
            )
            for row, (single, count) in enumerate(zip(self._singles, self._counts, strict=True))
        ]
        self.offset = self.offset + width
        if longest == width:  # nobody has run before: what is new is all there is
            return keys, values
        return (
            mx.concatenate([_padded(own, longest) for own, _ in kept]),
            mx.concatenate([_padded(own, longest) for _, own in kept]),
        )

    @property
    def state(self) -> list[Any]:
        """Of each row its own."""
        return [single.state for single in self._singles]

    @state.setter
    def state(self, states: list[Any]) -> None:
        for single, state in zip(self._singles, states, strict=True):
            single.state = state


def _padded(rows: mx.array, length: int) -> mx.array:
    return mx.pad(rows, [(0, 0), (0, 0), (0, length - rows.shape[2]), (0, 0)])
