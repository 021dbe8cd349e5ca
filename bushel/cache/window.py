"""A sliding window: a ring of the last `max_size` keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from bushel.cache.kv_layer import KVLayer
from bushel.cache.layer_kind import Layer, LayerSnapshot, owned, some_rows


class Window(KVLayer):
    name = "window"

    def merge(self, singles: Sequence[Layer]) -> Layer:
        # The libraries' batch ring has no pinned first tokens and would silently drop them.
        self.require(all(single.keep == 0 for single in singles), "pinned tokens cannot batch")
        return type(singles[0]).merge(list(singles))

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        for name in ("keys", "values", "offset", "left_padding"):
            setattr(batch, name, some_rows(getattr(batch, name), keep))

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        return batch.extract(row)

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        if single.keys is None:
            return LayerSnapshot(self.name, position, (None, None))
        # A batch of one is in temporal order and holds the window alone, not a whole chunk.
        row = self.merge([single])
        return LayerSnapshot(self.name, position, (owned(row.keys), owned(row.values)))

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        keys, values = (owned(array) for array in snapshot.arrays)
        fresh.keys, fresh.values = keys, values
        fresh.offset = snapshot.position
        fresh._idx = 0 if keys is None else keys.shape[2]
        return fresh
