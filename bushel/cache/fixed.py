"""State that stays as it is from the first token on, such as what cross-attention looks at.

Nothing writes into its arrays, so copies share them.
"""

from __future__ import annotations

from bushel.cache.layer_kind import Layer, LayerSnapshot
from bushel.cache.row_list import ByRow
from bushel.core.footprint import LayerFootprint


class Fixed(ByRow):
    name = "fixed"

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        return LayerSnapshot(self.name, position, tuple(single.arrays))

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        fresh.arrays = snapshot.arrays
        return fresh

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        arrays = list(self.arrays(single))
        return [LayerFootprint(fixed=sum(array.nbytes for array in arrays), buffers=len(arrays))]
