"""Recurrent state: a few arrays of fixed size that summarise all tokens so far.

There is no way back from it: going to an earlier position means restoring a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from bushel.cache.layer_kind import Layer, LayerKind, LayerSnapshot, owned, some_rows
from bushel.core.footprint import LayerFootprint


class Recurrent(LayerKind):
    name = "recurrent"

    def merge(self, singles: Sequence[Layer]) -> Layer:
        batch = type(singles[0]).merge(list(singles))
        # A padding of zeros would be carried as one more unevaluated node per step and layer.
        batch.finalize()
        return batch

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        batch.extend(singles[0] if len(singles) == 1 else self.merge(singles))
        batch.finalize()

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        batch.cache = [some_rows(array, keep) for array in batch.cache]

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        for slot, array in enumerate(batch.cache):
            # An owned row: a view would keep the whole batch's buffer alive.
            fresh[slot] = mx.contiguous(array[row : row + 1])
        return fresh

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        return LayerSnapshot(self.name, position, tuple(owned(array) for array in single.cache))

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        for slot, array in enumerate(snapshot.arrays):
            fresh[slot] = owned(array)
        return fresh

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        yield from (array for array in layer.cache if array is not None)
        for name in ("left_padding", "lengths"):
            if isinstance(value := getattr(layer, name), mx.array):
                yield value

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        arrays = list(self.arrays(single))
        return [LayerFootprint(fixed=sum(array.nbytes for array in arrays), buffers=len(arrays))]

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        self.require(layer.left_padding is None and layer.lengths is None, "padding left behind")
        for array in layer.cache:
            if array is None:
                self.require(len(positions) == 1, "an empty slot in a batch")
            else:
                rows = array.shape[0]
                self.require(rows == len(positions), f"{rows} rows for {len(positions)}")
