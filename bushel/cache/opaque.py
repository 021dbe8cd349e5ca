"""State of a kind Bushel does not know: one row alone can use it, and it can be copied whole."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import mlx.core as mx
from mlx.utils import tree_flatten

from bushel.cache.layer_kind import Layer, LayerKind, LayerSnapshot


class CopiedWhole(LayerKind):
    """A copy of the object is its snapshot: what it is made of is the library's matter."""

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        held = copy.deepcopy(single)
        return LayerSnapshot(self.name, position, tuple(self.arrays(held)), held=held)

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        return copy.deepcopy(snapshot.held)


class Opaque(CopiedWhole):
    name = "opaque"

    def _refuse(self, layer: Layer) -> NoReturn:
        raise TypeError(f"{type(layer).__name__} cannot be batched")

    def merge(self, singles: Sequence[Layer]) -> Layer:
        self._refuse(singles[0])

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        self._refuse(batch)

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        self._refuse(batch)

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        self._refuse(batch)

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        leaves: Any = tree_flatten(layer.state)
        for _, value in leaves:
            if isinstance(value, mx.array):
                yield value

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        self.require(len(positions) == 1, f"{len(positions)} rows")
