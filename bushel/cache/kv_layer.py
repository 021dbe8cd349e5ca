"""What layers of keys and values have in common, whether they keep them all or a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from bushel.cache.layer_kind import Layer, LayerKind
from bushel.core.footprint import LayerFootprint


def unwritten(layer: Layer) -> bool:
    """Rows that meet have run a token: what is empty even then, the model never writes.

    nemotron-nas has a cache for every attention it has replaced by a linear map.
    """
    return layer.keys is None


class KVLayer(LayerKind):
    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        if not unwritten(batch):
            batch.extend(self.merge(singles))

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        for name in ("keys", "values", "offset", "left_padding"):
            if isinstance(value := getattr(layer, name, None), mx.array):
                yield value

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        if single.keys is None:
            return []
        kept = single.keys.shape[2]
        each = (single.keys.nbytes + single.values.nbytes) // kept
        return [LayerFootprint(each, getattr(single, "max_size", None), buffers=4)]

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        offsets = [layer.offset] if isinstance(layer.offset, int) else layer.offset.tolist()
        if unwritten(layer):
            self.require(offsets == [0], f"no keys at offsets {offsets}")
            return
        self.require(offsets == list(positions), f"offsets {offsets}, rows {list(positions)}")
        rows, _, room, _ = layer.keys.shape
        self.require(rows == len(positions), f"{rows} rows of keys for {len(positions)}")
        seen = min(max(positions), getattr(layer, "max_size", max(positions)))
        self.require(room >= seen, f"room for {room} of {seen} visible tokens")
