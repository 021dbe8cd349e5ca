"""Several states inside one layer, such as attention beside a state-space model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from bushel.cache.layer_kind import Layer, LayerKind, LayerSnapshot
from bushel.core.footprint import LayerFootprint


class Composite(LayerKind):
    name = "composite"

    def __init__(self, kind_of: Any):
        self._kind_of = kind_of

    def parts(self, layer: Layer) -> list[tuple[LayerKind, Layer]]:
        return [inner for kind, part in self._each(layer) for inner in kind.parts(part)]

    def _each(self, layer: Layer) -> list[tuple[LayerKind, Layer]]:
        return [(self._kind_of(part), part) for part in layer.caches]

    def merge(self, singles: Sequence[Layer]) -> Layer:
        columns = zip(*(single.caches for single in singles), strict=True)
        return type(singles[0])(*(self._kind_of(column[0]).merge(column) for column in columns))

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        columns = zip(*(single.caches for single in singles), strict=True)
        for (kind, part), column in zip(self._each(batch), columns, strict=True):
            kind.join(part, column)

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        for kind, part in self._each(batch):
            kind.leave(part, keep, positions)

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        pairs = zip(self._each(batch), fresh.caches, strict=True)
        return type(fresh)(*(kind.single(part, row, position, new) for (kind, part), new in pairs))

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        parts = tuple(kind.snapshot(part, position) for kind, part in self._each(single))
        return LayerSnapshot(self.name, position, (), parts)

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        pairs = zip(snapshot.parts, self._each(fresh), strict=True)
        return type(fresh)(*(kind.restore(part, new) for part, (kind, new) in pairs))

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        for kind, part in self._each(layer):
            yield from kind.arrays(part)

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        return [size for kind, part in self._each(single) for size in kind.size(part, position)]

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        for kind, part in self._each(layer):
            kind.check(part, positions)
