"""Keys and values in 8 or 4 bits: every token stays visible, in a narrower form.

Each token's keys (and values) are encoded by themselves, in groups along the head:

    keys = packed [B, H, T, D * bits / 32]   scales [B, H, T, D / group]   biases (as scales)

so neither chunks nor neighbours change what is stored. A single is the libraries' own
`QuantizedKVCache`, from the first token on; its batch form is here, because mlx-lm has none.
Rows are laid out as in `kv_cache`: left-padded to the longest, `_idx` is where the next token goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx

from bushel.cache.layer_kind import Layer, LayerKind, LayerSnapshot, owned, some_rows

Triple = tuple[mx.array, ...]  # packed, scales, biases: tokens are axis 2 of each

# Room grows by as many tokens as that of the libraries' caches.
_STEP = 256


def _each(change: Callable[[mx.array], mx.array], triple: Triple) -> Triple:
    return tuple(change(array) for array in triple)


def _stacked(parts: Sequence[tuple[Triple, int]], end: int) -> Triple:
    """Rows of so many tokens each, under one another, so that all end at `end`."""
    room = end - end % _STEP + _STEP

    def placed(array: mx.array, used: int) -> mx.array:
        return mx.pad(array[:, :, :used], [(0, 0), (0, 0), (end - used, room - end), (0, 0)])

    placed_parts = [[placed(array, used) for array in triple] for triple, used in parts]
    return tuple(mx.concatenate(list(rows)) for rows in zip(*placed_parts, strict=True))


class QuantizedBatch:
    """What a model sees as the cache of a layer with two or more rows.

    `bits` and `group_size` lead the libraries' attention to its quantized form. `left_padding`
    is host integers: an array of that name leads mlx-vlm's qwen3_5 to a kernel for plain keys,
    and with quantized ones to no mask at all.
    """

    def __init__(self, keys: Triple, values: Triple, offsets: Sequence[int], form: Layer):
        self.keys, self.values = keys, values
        self.bits, self.group_size = form.bits, form.group_size
        self._place(max(offsets), offsets)

    def _place(self, end: int, offsets: Sequence[int]) -> None:
        self._idx = end
        self.offset = mx.array(list(offsets))
        self.left_padding = tuple(end - offset for offset in offsets)
        self._first = mx.array(self.left_padding)[:, None, None, None]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Triple, Triple]:
        start, count = self._idx, keys.shape[2]
        self._idx += count
        self.offset = self.offset + count  # rebound: rope still reads the old one
        if self._idx > self.keys[0].shape[2]:
            self._grow(start, count)
        for stored, new in ((self.keys, keys), (self.values, values)):
            encoded = mx.quantize(new, group_size=self.group_size, bits=self.bits)
            for buffer, part in zip(stored, encoded, strict=True):
                buffer[:, :, start : self._idx] = part
        return self._used(self.keys), self._used(self.values)

    def _used(self, triple: Triple) -> Triple:
        return _each(lambda array: array[:, :, : self._idx], triple)

    def _grow(self, used: int, count: int) -> None:
        room = (_STEP + count - 1) // _STEP * _STEP

        def longer(array: mx.array) -> mx.array:
            return mx.pad(array[:, :, :used], [(0, 0), (0, 0), (0, room), (0, 0)])

        self.keys, self.values = _each(longer, self.keys), _each(longer, self.values)

    def make_mask(
        self, N: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array:
        seen, new = mx.arange(self._idx + N), mx.arange(self._idx, self._idx + N)[:, None]
        mask = (new >= seen) & (self._first <= seen)
        return mask if window_size is None else mask & (new < seen + window_size)


class Quantized(LayerKind):
    name = "quantized"
    appends = True

    def merge(self, singles: Sequence[Layer]) -> Layer:
        offsets = [single.offset for single in singles]
        end = max(offsets)
        return QuantizedBatch(
            _stacked([(single.keys, single.offset) for single in singles], end),
            _stacked([(single.values, single.offset) for single in singles], end),
            offsets,
            singles[0],
        )

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        ends = [batch._idx, *(single.offset for single in singles)]
        for name in ("keys", "values"):
            parts = [getattr(layer, name) for layer in (batch, *singles)]
            setattr(batch, name, _stacked([*zip(parts, ends, strict=True)], max(ends)))
        before = [batch._idx - padding for padding in batch.left_padding]
        batch._place(max(ends), [*before, *ends[1:]])

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        unused = batch._idx - max(positions)
        batch.keys = _each(lambda array: some_rows(array[:, :, unused:], keep), batch.keys)
        batch.values = _each(lambda array: some_rows(array[:, :, unused:], keep), batch.values)
        batch._place(max(positions), positions)

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        used = slice(batch._idx - position, batch._idx)

        def cut(array: mx.array) -> mx.array:
            return mx.contiguous(array[row : row + 1, :, used])

        fresh.keys, fresh.values = _each(cut, batch.keys), _each(cut, batch.values)
        fresh.offset = position
        return fresh

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        if single.keys is None:
            return LayerSnapshot(self.name, position, (None,) * 6)
        arrays = (*single.keys, *single.values)
        used = tuple(owned(array[:, :, : single.offset]) for array in arrays)
        return LayerSnapshot(self.name, position, used)

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        if snapshot.arrays[0] is not None:
            arrays = tuple(owned(array) for array in snapshot.arrays)
            fresh.keys, fresh.values = arrays[:3], arrays[3:]
            fresh.offset = snapshot.arrays[0].shape[2]
        return fresh

    def cut(
        self, layer: Layer, row: int, position: int, start: int, end: int
    ) -> tuple[mx.array, ...]:
        if layer.keys is None:
            return ()
        first = getattr(layer, "_idx", position) - position
        wanted = slice(row, row + 1), slice(None), slice(first + start, first + end)
        return tuple(array[wanted] for array in (*layer.keys, *layer.values))

    def assemble(self, arrays: Sequence[mx.array], position: int, fresh: Layer) -> None:
        if arrays:
            fresh.keys, fresh.values = tuple(arrays[:3]), tuple(arrays[3:])
            fresh.offset = position

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        if layer.keys is not None:
            yield from (*layer.keys, *layer.values)
        if isinstance(layer, QuantizedBatch):
            yield layer.offset

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        offsets = [layer.offset] if isinstance(layer.offset, int) else layer.offset.tolist()
        self.require(offsets == list(positions), f"offsets {offsets}, rows {list(positions)}")
        if layer.keys is None:
            return
        for array in (*layer.keys, *layer.values):
            rows, _, room, _ = array.shape
            self.require(rows == len(positions), f"{rows} rows for {len(positions)}")
            self.require(room >= max(positions), f"room for {room} of {max(positions)} tokens")
        if isinstance(layer, QuantizedBatch):
            pads = layer.left_padding
            ends = {pad + at for pad, at in zip(pads, positions, strict=True)}
            self.require(ends == {layer._idx}, f"rows end at {ends}, not {layer._idx}")
