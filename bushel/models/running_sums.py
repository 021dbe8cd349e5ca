"""Running sums over all tokens, and a window of the last few: the state of z1t, in several rows.

The library's is of one row: it counts its tokens in one number, and has no way to be merged.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache


def _slot(at: int) -> Any:
    def get(self: ArraysCache) -> mx.array | None:
        return self[at]

    def put(self: ArraysCache, value: mx.array) -> None:
        self[at] = value

    return property(get, put)


class RunningSums(ArraysCache):
    """One row or several: mlx-vlm's Z1TCache by its names, and how many tokens each row has run."""

    cum_eKV, cum_eK, win_eKV, win_eK, _count = map(_slot, range(5))

    def __init__(self, size: int = 5):
        super().__init__(size)

    @property
    def offset(self) -> Any:
        # A copy: mx.array += mutates in place.
        return 0 if self._count is None else self._count + 0

    @offset.setter
    def offset(self, value: Any) -> None:
        self._count = value if isinstance(value, mx.array) else mx.array([value])
