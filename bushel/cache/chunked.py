"""Chunked attention: a token sees its own chunk alone, from the chunk's first token on.

chunks of four; rows end together, and each has run as many tokens as it has

row 0  a b c d e f |       the next token, g, sees e f
row 1  . . . a b c |       the next token, d, sees a b c
                   ^ _idx  offset = [6, 3]

A column holds the same token for ever, so that its position tells what a row sees of it: nothing
has to be moved when a row comes to its next chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from bushel.cache.layer_kind import Layer, LayerKind, LayerSnapshot, owned, some_rows
from bushel.core.footprint import STEP, LayerFootprint


class BatchChunkedKVCache:
    """Rows of the libraries' ChunkedKVCache. `make_mask` comes before the tokens that it is for."""

    def __init__(self, keys: mx.array, values: mx.array, offset: mx.array, chunk_size: int):
        self.keys, self.values = keys, values
        self.offset = offset
        self.chunk_size = chunk_size
        self._idx = keys.shape[2]  # columns that are written

    def maybe_trim_front(self) -> None:
        """Let go of columns that nobody will see again, once there are many."""
        if self._idx > self.chunk_size + STEP:
            kept = slice(self._idx - self.chunk_size, self._idx)
            self.keys, self.values = self.keys[:, :, kept], self.values[:, :, kept]
            self._idx = self.chunk_size

    def make_mask(self, tokens: int) -> mx.array:
        """[B, 1, T, K] for so many new tokens of each row."""
        columns = mx.arange(self._idx + tokens) - self._idx
        held = self.offset[:, None, None] + columns  # [B, 1, K] positions
        asking = self.offset[:, None] + mx.arange(tokens)
        first = asking // self.chunk_size * self.chunk_size
        seen = (held <= asking[:, :, None]) & (held >= first[:, :, None])
        return seen[:, None]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        end = self._idx + keys.shape[2]
        if end > self.keys.shape[2]:
            room = -(-end // STEP) * STEP - self._idx
            self.keys = _with_room(self.keys[:, :, : self._idx], room)
            self.values = _with_room(self.values[:, :, : self._idx], room)
        self.keys[:, :, self._idx : end] = keys
        self.values[:, :, self._idx : end] = values
        self.offset = self.offset + keys.shape[2]
        self._idx = end
        return self.keys[:, :, :end], self.values[:, :, :end]


def _with_room(array: mx.array, columns: int) -> mx.array:
    return mx.pad(array, [(0, 0), (0, 0), (0, columns), (0, 0)])


class ChunkedKV(LayerKind):
    name = "chunked"

    def merge(self, singles: Sequence[Layer]) -> Layer:
        rows = [self._last(single) for single in singles]
        offset = mx.array([single.offset for single in singles])
        keys, values = (_right_aligned(column) for column in zip(*rows, strict=True))
        return BatchChunkedKVCache(keys, values, offset, singles[0].chunk_size)

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        new = self.merge(singles)
        batch.keys = _right_aligned([batch.keys[:, :, : batch._idx], new.keys])
        batch.values = _right_aligned([batch.values[:, :, : batch._idx], new.values])
        batch.offset = mx.concatenate([batch.offset, new.offset])
        batch._idx = batch.keys.shape[2]

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        used = slice(max(0, batch._idx - max(positions)), batch._idx)
        batch.keys = some_rows(batch.keys[:, :, used], keep)
        batch.values = some_rows(batch.values[:, :, used], keep)
        batch.offset = some_rows(batch.offset, keep)
        batch._idx = batch.keys.shape[2]

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        kept = min(position, batch.chunk_size, batch._idx)
        used = slice(row, row + 1), slice(None), slice(batch._idx - kept, batch._idx)
        return _hold(fresh, batch.keys[used], batch.values[used], position)

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        arrays = (None, None) if single.keys is None else self._last(single)
        return LayerSnapshot(self.name, position, tuple(map(owned, arrays)))

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        keys, values = (owned(array) for array in snapshot.arrays)
        if keys is None or values is None:
            return fresh
        return _hold(fresh, keys, values, snapshot.position)

    def _last(self, single: Layer) -> tuple[mx.array, mx.array]:
        """What a single holds, as far as it may still be seen."""
        end = single.offset - single.start_position
        used = slice(max(0, end - single.chunk_size), end)
        return single.keys[:, :, used], single.values[:, :, used]

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        for value in (layer.keys, layer.values, layer.offset):
            if isinstance(value, mx.array):
                yield value

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        if single.keys is None:
            return []
        each = (single.keys.nbytes + single.values.nbytes) // single.keys.shape[2]
        return [LayerFootprint(each, single.chunk_size + STEP, buffers=3)]

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        if isinstance(layer.offset, int):
            self.require([layer.offset] == list(positions), f"{layer.offset} in {list(positions)}")
            start, room = layer.start_position, 0 if layer.keys is None else layer.keys.shape[2]
            self.require(room >= layer.offset - start, f"room for {room} from {start} on")
            return
        offsets = layer.offset.tolist()
        self.require(offsets == list(positions), f"offsets {offsets}, rows {list(positions)}")
        self.require(layer.keys.shape[0] == len(positions), f"{layer.keys.shape[0]} rows of keys")
        seen = min(max(positions), layer.chunk_size)
        self.require(layer._idx >= seen, f"{layer._idx} of {seen} tokens that may be seen")


def _right_aligned(arrays: Sequence[mx.array]) -> mx.array:
    """Rows of different lengths in one array [B, H, longest, D]."""
    longest = max(array.shape[2] for array in arrays)
    return mx.concatenate(
        [mx.pad(one, [(0, 0), (0, 0), (longest - one.shape[2], 0), (0, 0)]) for one in arrays]
    )


def _hold(fresh: Layer, keys: mx.array, values: mx.array, position: int) -> Layer:
    fresh.keys, fresh.values = mx.contiguous(keys), mx.contiguous(values)
    fresh.offset = position
    fresh.start_position = position - keys.shape[2]
    return fresh
