"""Keys and values in which every row has its own length, as kinds of layers.

Singles are the libraries' own classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from bushel.cache.kv_cache import KV
from bushel.cache.kv_layer import KVLayer, unwritten
from bushel.cache.layer_kind import Layer, some_rows
from bushel.cache.ragged.ragged_caches import RaggedCache, RaggedKVCache, RaggedWindowCache
from bushel.cache.ragged.row_lengths import RowLengths
from bushel.cache.window import Window


def _stacked(rows: Sequence[mx.array]) -> mx.array:
    """Rows of [B, H, room, D], each with room of its own, in one."""
    room = max(row.shape[2] for row in rows)
    padded = [
        row
        if row.shape[2] == room
        else mx.pad(row, [(0, 0), (0, 0), (0, room - row.shape[2]), (0, 0)])
        for row in rows
    ]
    return padded[0] if len(padded) == 1 else mx.concatenate(padded)


class _Ragged(KVLayer):
    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        if not unwritten(layer):
            yield from (layer.keys, layer.values)

    def _append(self, batch: RaggedCache, more: Sequence[tuple[mx.array, mx.array]]) -> None:
        there = [] if batch.keys is None else [(batch.keys, batch.values)]
        columns = zip(*there, *more, strict=True)
        batch.keys, batch.values = (_stacked(column) for column in columns)

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        if unwritten(batch):
            return
        # Whoever joins later gets as much room as those have that are here.
        room = min(batch.keys.shape[2], batch.room_for(max(positions)))
        batch.keys, batch.values = (
            some_rows(array[:, :, :room], keep) for array in (batch.keys, batch.values)
        )

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        self.require(
            layer.lengths.tokens == list(positions),
            f"lengths {layer.lengths.tokens}, rows {list(positions)}",
        )
        if unwritten(layer):
            return
        rows, _, room, _ = layer.keys.shape
        self.require(rows == len(positions), f"{rows} rows of keys for {len(positions)}")
        seen = layer.slots_of(max(positions))
        self.require(room >= seen, f"room for {room} of {seen} tokens")


class RaggedKV(_Ragged, KV):
    def begin(self, singles: Sequence[Layer], lengths: RowLengths) -> Layer:
        grouped = type(singles[0]).__name__ == "GroupedKVCache"
        batch = RaggedKVCache(lengths, grouped=grouped)
        self.join(batch, singles)
        return batch

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        if unwritten(singles[0]):
            return
        if unwritten(batch) and len(singles) == 1:  # they lie as they should
            batch.keys, batch.values = singles[0].keys, singles[0].values
            return
        used = [
            tuple(array[:, :, : single.offset] for array in (single.keys, single.values))
            for single in singles
        ]
        self._append(batch, used)

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        if not unwritten(batch):
            keys, values = self.cut(batch, row, position, 0, position)
            fresh.keys, fresh.values = mx.contiguous(keys), mx.contiguous(values)
            fresh.offset = position
        return fresh

    def cut(
        self, layer: Layer, row: int, position: int, start: int, end: int
    ) -> tuple[mx.array, ...]:
        if unwritten(layer):
            return ()
        wanted = slice(row, row + 1), slice(None), slice(start, end)
        return layer.keys[wanted], layer.values[wanted]


class RaggedWindow(_Ragged, Window):
    def begin(self, singles: Sequence[Layer], lengths: RowLengths) -> Layer:
        batch = RaggedWindowCache(lengths, singles[0].max_size)
        self.join(batch, singles)
        return batch

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        if unwritten(singles[0]):
            return
        self._append(batch, [self._in_ring(batch, single) for single in singles])

    def _in_ring(self, batch: RaggedWindowCache, single: Layer) -> tuple[mx.array, mx.array]:
        """What a single keeps, every token in its slot of the ring."""
        position = single.offset
        ordered = Window.merge(self, [single])  # in temporal order, and the window alone
        kept = ordered.keys.shape[2]
        if position <= batch.ring:
            before = [(0, 0), (0, 0), (position - kept, 0), (0, 0)]
            return mx.pad(ordered.keys, before), mx.pad(ordered.values, before)
        behind = [(0, 0), (0, 0), (0, batch.ring - kept), (0, 0)]
        first = (position - kept) % batch.ring
        keys, values = (
            mx.roll(mx.pad(array, behind), first, 2) for array in (ordered.keys, ordered.values)
        )
        return keys, values

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        if unwritten(batch):
            return fresh
        kept = min(position, batch.max_size)
        first, room = (position - kept) % batch.ring, batch.keys.shape[2]

        def ordered(array: mx.array) -> mx.array:
            one = array[row : row + 1]
            if first + kept <= room:
                return mx.contiguous(one[:, :, first : first + kept])
            wrapped = one[:, :, : first + kept - batch.ring]
            return mx.concatenate([one[:, :, first:], wrapped], axis=2)

        fresh.keys, fresh.values = ordered(batch.keys), ordered(batch.values)
        fresh.offset, fresh._idx = position, kept
        return fresh
