"""Appendable keys and values: every token stays visible.

batch of three rows, left-padded to the longest; `_idx` is where the next token goes

row 0  . . . . a b c d | free
row 1  a b c d e f g h | free
row 2  . . a b c d e f | free
                       ^ _idx         left_padding = [4, 0, 2]   offset = [4, 8, 6]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from bushel.cache.layer import Layer, LayerKind, LayerSnapshot, owned


class KV(LayerKind):
    name = "kv"

    def merge(self, singles: Sequence[Layer]) -> Layer:
        return type(singles[0]).merge(list(singles))

    def join(self, batch: Layer, single: Layer) -> None:
        batch.extend(self.merge([single]))

    def leave(self, batch: Layer, keep: Sequence[int]) -> None:
        batch.filter(mx.array(list(keep)))

    def single(self, batch: Layer, row: int, fresh: Layer) -> Layer:
        return batch.extract(row)

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        if single.keys is None:
            return LayerSnapshot(self.name, position, (None, None))
        used = slice(0, single.offset)
        return LayerSnapshot(
            self.name,
            position,
            (owned(single.keys[..., used, :]), owned(single.values[..., used, :])),
        )

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        keys, values = (owned(array) for array in snapshot.arrays)
        fresh.keys, fresh.values = keys, values
        fresh.offset = 0 if keys is None else keys.shape[2]
        return fresh

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        for name in ("keys", "values", "offset", "left_padding"):
            if isinstance(value := getattr(layer, name, None), mx.array):
                yield value

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        offsets = [layer.offset] if isinstance(layer.offset, int) else layer.offset.tolist()
        self.require(offsets == list(positions), f"offsets {offsets}, rows {list(positions)}")
        if layer.keys is None:
            return
        rows, _, room, _ = layer.keys.shape
        self.require(rows == len(positions), f"{rows} rows of keys for {len(positions)}")
        self.require(room >= max(positions), f"room for {room} of {max(positions)} tokens")
        if hasattr(layer, "left_padding"):
            pads = layer.left_padding.tolist()
            ends = [pad + offset for pad, offset in zip(pads, offsets, strict=True)]
            self.require(ends == [layer._idx] * rows, f"rows end at {ends}, not {layer._idx}")
