"""Appendable keys and values: every token stays visible.

batch of three rows, left-padded to the longest; `_idx` is where the next token goes

row 0  . . . . a b c d | free
row 1  a b c d e f g h | free
row 2  . . a b c d e f | free
                       ^ _idx         left_padding = [4, 0, 2]   offset = [4, 8, 6]
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from bushel.cache.kv_layer import KVLayer, unwritten
from bushel.cache.layer_kind import Layer, LayerSnapshot, owned, some_rows


class KV(KVLayer):
    name = "kv"
    appends = True

    def merge(self, singles: Sequence[Layer]) -> Layer:
        if unwritten(singles[0]):
            return singles[0]
        return type(singles[0]).merge(list(singles))

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        if unwritten(batch):
            return
        # As the libraries' `filter`, which waits for the device in every layer to learn the
        # padding (H200, 16 layers, 8 rows of 2k tokens: 9 ms).
        unused = batch._idx - max(positions)
        batch.keys = some_rows(batch.keys[:, :, unused:], keep)
        batch.values = some_rows(batch.values[:, :, unused:], keep)
        batch.offset = some_rows(batch.offset, keep)
        batch.left_padding = some_rows(batch.left_padding, keep) - unused
        batch._idx -= unused

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        if unwritten(batch):
            return fresh
        used = slice(batch._idx - position, batch._idx)
        fresh.keys = mx.contiguous(batch.keys[row : row + 1, :, used])
        fresh.values = mx.contiguous(batch.values[row : row + 1, :, used])
        fresh.offset = position
        return fresh

    def make_room(self, single: Layer, position: int, room: int) -> None:
        if unwritten(single) or single.keys.shape[2] == room:
            return
        free = [(0, 0), (0, 0), (0, room - position), (0, 0)]
        single.keys = mx.pad(single.keys[:, :, :position], free)
        single.values = mx.pad(single.values[:, :, :position], free)

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

    def cut(
        self, layer: Layer, row: int, position: int, start: int, end: int
    ) -> tuple[mx.array, ...]:
        if layer.keys is None:
            return ()
        first = getattr(layer, "_idx", position) - position
        wanted = slice(row, row + 1), slice(None), slice(first + start, first + end)
        return layer.keys[wanted], layer.values[wanted]

    def assemble(self, arrays: Sequence[mx.array], position: int, fresh: Layer) -> None:
        if arrays:
            fresh.keys, fresh.values = arrays
            fresh.offset = position

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        super().check(layer, positions)
        if layer.keys is not None and hasattr(layer, "left_padding"):
            pads = layer.left_padding.tolist()
            ends = [pad + at for pad, at in zip(pads, positions, strict=True)]
            self.require(set(ends) == {layer._idx}, f"rows end at {ends}, not {layer._idx}")
