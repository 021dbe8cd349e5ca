"""The contract every kind of layer state fulfils, over the libraries' own cache classes.

Words used here:
  layer      one entry of a model's state list: a cache object of mlx-lm or mlx-vlm
  single     a layer that holds one row, as the library's own loop uses it
  batch      a layer that holds two or more rows, as the library's batch classes do
  snapshot   an owned, contiguous, immutable copy of a single layer at one position

Only rows that have run a token are batched: "no state yet" and "zeros" differ for some
families (recurrent_gemma scales its very first input differently).

A kind is stateless; the layer objects carry all data. All calls run on the thread that owns
MLX. Sizes come from shapes and never force evaluation (B56).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from bushel.core import IntegrityError
from bushel.core.footprint import STEP, LayerFootprint

Layer = Any

_FEW_RUNS = 4


@dataclass(frozen=True)
class LayerSnapshot:
    """`arrays` may be shared by any number of restored layers: nothing writes into them."""

    kind: str
    position: int
    arrays: tuple[mx.array | None, ...]
    parts: tuple[LayerSnapshot, ...] = ()
    held: Layer = None  # a copy of the layer itself, where its arrays alone do not make one
    varies: bool = False  # at other positions, places have arrays of other shapes, or none

    @property
    def nbytes(self) -> int:
        own = sum(array.nbytes for array in self.arrays if array is not None)
        return own + sum(part.nbytes for part in self.parts)


class LayerKind(ABC):
    """Kinds that `append` keep something for every token, which can be cut and put together."""

    name: str
    appends = False
    sized_after = 1  # tokens that a row has run when `size` can tell what more of them cost
    lossless: tuple[int, ...] = ()  # which arrays of `cut` are not kept in fewer bits

    @abstractmethod
    def merge(self, singles: Sequence[Layer]) -> Layer:
        """Two or more singles into one batch, in order. The singles are not used again."""

    @abstractmethod
    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        """Append rows to a batch, which is copied once, however many they are."""

    @abstractmethod
    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        """Keep these rows of a batch (two or more), in order; they have run `positions` tokens."""

    @abstractmethod
    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        """One row of a batch as a single; `fresh` is an empty layer of the model's making."""

    @abstractmethod
    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        """Copy what the model can still see of a single that has run `position` tokens."""

    @abstractmethod
    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        """A single that goes on exactly where the snapshot was taken."""

    def make_room(self, single: Layer, position: int, room: int) -> None:
        """Let a single that has run `position` tokens have places for `room`, where it matters."""
        return

    def parts(self, layer: Layer) -> list[tuple[LayerKind, Layer]]:
        """Itself, or the states that it consists of."""
        return [(self, layer)]

    def cut(
        self, layer: Layer, row: int, position: int, start: int, end: int
    ) -> tuple[mx.array, ...]:
        """Of a kind that appends: [1, H, T, D] of tokens [start, end) of a row that has run
        `position`. No arrays: the model never writes any.
        """
        raise NotImplementedError(self.name)

    def assemble(self, arrays: Sequence[mx.array], position: int, fresh: Layer) -> None:
        """Of a kind that appends: fill a fresh single with these arrays, the first `position`
        tokens of a row.
        """
        raise NotImplementedError(self.name)

    @abstractmethod
    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        """Every buffer the layer holds on to."""

    def unread(self, layer: Layer) -> Iterator[mx.array]:
        """Of these, what steps may go on adding to without anybody reading it."""
        return (array for array in self.arrays(layer) if array.ndim <= 1)

    @abstractmethod
    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        """Raise IntegrityError unless the layer fits rows that have run `positions` tokens."""

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        """What rows of this layer cost, told from a single that has run `position` tokens.

        Here: everything grows with the row, in the libraries' steps.
        """
        arrays = list(self.arrays(single))
        kept = -(-position // STEP) * STEP
        return [LayerFootprint(sum(array.nbytes for array in arrays) // kept, buffers=len(arrays))]

    def require(self, ok: bool, what: str) -> None:
        if not ok:
            raise IntegrityError(f"{self.name} layer: {what}")


def some_rows(array: mx.array, keep: Sequence[int]) -> mx.array:
    """These rows of a batch, in order, in a buffer of their own.

    As runs of rows that stay neighbours, if there are few: H200, 15 of 16 rows of 58 arrays of
    34 MB: 1.8 ms, and 8.9 by indices.
    """
    runs: list[list[int]] = []
    for row in keep:
        if runs and runs[-1][1] == row:
            runs[-1][1] = row + 1
        else:
            runs.append([row, row + 1])
    if len(runs) > _FEW_RUNS:
        return array[mx.array(list(keep))]
    return mx.contiguous(mx.concatenate([array[first:end] for first, end in runs]))


def owned(array: mx.array | None) -> mx.array | None:
    """A copy that shares no buffer with a cache that is still being written."""
    return None if array is None else mx.contiguous(array + mx.zeros((), array.dtype))
