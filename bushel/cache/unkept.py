"""State that is not stored, because it can be recomputed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from bushel.cache.layer_kind import Layer, LayerKind, LayerSnapshot
from bushel.core.footprint import LayerFootprint


class Unkept(LayerKind):
    name = "unkept"

    def parts(self, layer: Layer) -> list[tuple[LayerKind, Layer]]:
        return []

    def merge(self, singles: Sequence[Layer]) -> Layer:
        return singles[0]

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        pass

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        pass

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        return fresh

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        return LayerSnapshot(self.name, position, ())

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        return fresh

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        yield from ()

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        return []

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        pass
