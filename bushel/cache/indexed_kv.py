"""Keys and values with an index beside them, by which sparse attention chooses blocks of tokens.

A batch is left-padded like one of plain keys and values; a row's blocks begin at its first token.

row 0  . . . a b c d|e f g h|i       index_keys          [B, T, D]     as projected
row 1  a b c d|e f g h|i j k l       index_position_ids  [3, B, T]     for whoever rotates them
                                     index_block_keys    [B, 1, T // 4, D]

The keys of whole blocks are made of the others, and made again where they are missing: nobody keeps
them. A row that is short enough for attention to look at everything has an index all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx

from bushel.cache.kv_cache import KV
from bushel.cache.layer_kind import Layer, LayerSnapshot, owned, some_rows
from bushel.core.footprint import LayerFootprint

_INDEX = ("index_keys", "index_position_ids", "index_block_keys")


def _kv(layer: Layer) -> Any:
    """What holds the keys and values: a batch has them in a cache of their own."""
    return getattr(layer, "kv_cache", layer)


class IndexedKV(KV):
    name = "indexed"
    lossless = (2,)  # of two blocks that are nearly as good, rounding would choose the other

    def merge(self, singles: Sequence[Layer]) -> Layer:
        batch = super().merge(singles)
        batch.clear_index_blocks()  # those of a row that is short yet may lack some
        return batch

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        batch.extend(self.merge(singles))

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        unused = batch._idx - max(positions)
        super().leave(batch.kv_cache, keep, positions)
        rows_first = batch.index_position_ids[:, :, unused:].swapaxes(0, 1)
        batch.index_keys = some_rows(batch.index_keys[:, unused:], keep)
        batch.index_position_ids = some_rows(rows_first, keep).swapaxes(0, 1)
        batch.index_offset = batch._idx
        batch.clear_index_blocks()

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        super().single(batch.kv_cache, row, position, fresh)
        own, used = slice(row, row + 1), slice(batch._idx - position, batch._idx)
        fresh.index_keys = mx.contiguous(batch.index_keys[own, used])
        fresh.index_position_ids = mx.contiguous(batch.index_position_ids[:, own, used])
        return fresh

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        plain = super().snapshot(single, position)
        index = owned(single.index_keys), owned(single.index_position_ids)
        return replace(plain, arrays=(*plain.arrays, *index))

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        *plain, index_keys, index_position_ids = snapshot.arrays
        fresh.index_keys, fresh.index_position_ids = owned(index_keys), owned(index_position_ids)
        return super().restore(replace(snapshot, arrays=tuple(plain)), fresh)

    def cut(
        self, layer: Layer, row: int, position: int, start: int, end: int
    ) -> tuple[mx.array, ...]:
        plain = super().cut(_kv(layer), row, position, start, end)
        if not plain:
            return ()
        first = getattr(layer, "_idx", position) - position
        own, wanted = slice(row, row + 1), slice(first + start, first + end)
        index_keys = layer.index_keys[own, wanted]
        # Of text and of images alike: both may be edges of one tree.
        places = layer.index_position_ids[:, own, wanted].astype(mx.int32)
        return *plain, index_keys[:, None], places.transpose(1, 2, 0)[:, None]

    def assemble(self, arrays: Sequence[mx.array], position: int, fresh: Layer) -> None:
        if not arrays:
            return
        *plain, index_keys, places = arrays
        super().assemble(plain, position, fresh)
        # Unlike keys and values, an index is as long as it has tokens.
        fresh.index_keys = index_keys[:, 0, :position]
        fresh.index_position_ids = places[:, 0, :position].transpose(2, 0, 1)

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        yield from super().arrays(_kv(layer))
        yield from self._index(layer)

    def unread(self, layer: Layer) -> Iterator[mx.array]:
        yield from super().unread(layer)
        yield from self._index(layer)

    def _index(self, layer: Layer) -> list[mx.array]:
        values = (getattr(layer, name) for name in _INDEX)
        return [value for value in values if value is not None]

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        index = self._index(single)
        if not index:
            return []
        (plain,) = super().size(single, position)
        tokens = single.index_keys.shape[1]
        each = sum(-(-array.nbytes // tokens) for array in index)
        return [
            replace(plain, per_token=plain.per_token + each, buffers=plain.buffers + len(_INDEX))
        ]

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        super().check(_kv(layer), positions)
        if layer.index_keys is None:
            return
        rows, length, _ = layer.index_keys.shape
        longest = max(positions)
        self.require(rows == len(positions), f"an index of {rows} rows for {len(positions)}")
        self.require(
            length == getattr(layer, "_idx", longest) >= longest,
            f"an index of {length} tokens for rows of {list(positions)}",
        )
        places = layer.index_position_ids.shape
        self.require(places[1:] == (rows, length), f"positions {places} of {rows} x {length}")
