"""Pools: every few tokens of a row become one entry, and the newest wait for their pool to fill.

pools of four; rows are as long as they are, and entries of one row stand from the left

            entries              waiting        tokens run
row 0  [abcd] [efgh] . . |     i j . .          10
row 1  [abcd]   .    . . |     e . . .           5
               ^ longest        ^ position % ratio

Whatever stands right of a row's own entries is masked by their number. In some families an entry
also looks at the tokens of the one before it (`overlap`), which are kept for the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from bushel.cache.layer_kind import Layer, LayerKind, LayerSnapshot, owned, some_rows
from bushel.core.footprint import STEP, LayerFootprint

Overlap = tuple[mx.array, mx.array]  # keys and gates of the last whole pool: [B, ratio, D]


class PoolingBatch:
    """Rows of mlx-vlm's PoolingCache, which run one token each at a time.

    How long rows are is known on the host: the device is never asked.
    """

    def __init__(self, ratio: int, positions: Sequence[int]):
        self.ratio = ratio
        self.positions = list(positions)
        self.buf_kv: mx.array | None = None  # [B, ratio, D] that wait
        self.buf_gate: mx.array | None = None
        self.pooled: mx.array | None = None  # [B, room, D]
        self.overlap: Overlap | None = None
        self._filled: list[int] = []  # rows whose pool the newest token has filled

    @property
    def lengths(self) -> list[int]:
        """Entries of each row."""
        return [position // self.ratio for position in self.positions]

    @property
    def offset(self) -> mx.array:
        return mx.array(self.lengths, dtype=mx.int32)

    def accumulate_windows(
        self, kv: mx.array, gate: mx.array, offset: mx.array
    ) -> tuple[mx.array, mx.array, mx.array | int]:
        """Pools of all rows if one has filled its own, and where each begins; or none.

        Not from `offset`, which some models have moved on by then.
        """
        if kv.shape[1] != 1:
            raise ValueError(f"rows that share pools run one token at a time, not {kv.shape[1]}")
        if self.buf_kv is None or self.buf_gate is None:
            rows = len(self.positions)
            self.buf_kv = mx.zeros((rows, self.ratio, kv.shape[-1]), kv.dtype)
            self.buf_gate = mx.zeros((rows, self.ratio, gate.shape[-1]), gate.dtype)
        slots = mx.array([position % self.ratio for position in self.positions])
        here = (mx.arange(self.ratio) == slots[:, None])[:, :, None]
        self.buf_kv = mx.where(here, kv, self.buf_kv)
        self.buf_gate = mx.where(here, gate, self.buf_gate)
        self.positions = [position + 1 for position in self.positions]
        pairs = enumerate(self.positions)
        self._filled = [row for row, position in pairs if position % self.ratio == 0]
        if not self._filled:
            return kv[:, :0], gate[:, :0], 0
        starts = mx.array([position - self.ratio for position in self.positions])
        return self.buf_kv, self.buf_gate, mx.maximum(starts, 0)

    def update_and_fetch(self, entries: mx.array) -> mx.array:
        """entries: [B, 1, D], of which those of rows with a whole pool count; or none."""
        longest = max(self.lengths)
        if entries.shape[1]:
            self._make_room(longest, entries)
            assert self.pooled is not None
            rows, lengths = mx.array(self._filled), self.lengths
            last = mx.array([lengths[row] - 1 for row in self._filled])
            self.pooled[rows, last] = entries[rows, 0]
        if self.pooled is None:
            return entries[:, :0]
        return self.pooled[:, :longest]

    def keep_overlap(self, kv: mx.array, gate: mx.array) -> None:
        """Of a pool of each row: those that are not whole yet are left as they were."""
        if self.overlap is None:
            self.overlap = kv, gate
            return
        whole = mx.array([row in self._filled for row in range(len(self.positions))])[:, None, None]
        before_kv, before_gate = self.overlap
        self.overlap = mx.where(whole, kv, before_kv), mx.where(whole, gate, before_gate)

    def make_mask(self, tokens: int = 1, offset: object = 0) -> mx.array | None:
        """[B, 1, entries] that belong to each row; None: all."""
        lengths = self.lengths
        if len({*lengths}) == 1:
            return None
        return (mx.arange(max(lengths)) < mx.array(lengths)[:, None])[:, None]

    def _make_room(self, entries: int, like: mx.array) -> None:
        if self.pooled is not None and self.pooled.shape[1] >= entries:
            return
        room = -(-entries * self.ratio // STEP) * STEP // self.ratio
        rows, _, width = like.shape
        new = mx.zeros((rows, max(room, entries), width), like.dtype)
        if self.pooled is not None:
            new[:, : self.pooled.shape[1]] = self.pooled
        self.pooled = new


class PooledKV(LayerKind):
    name = "pooled"

    def merge(self, singles: Sequence[Layer]) -> Layer:
        batch = PoolingBatch(singles[0].ratio, [_position(single) for single in singles])
        for name in ("buf_kv", "buf_gate", "pooled"):
            setattr(batch, name, _stacked([(getattr(single, name), 1) for single in singles]))
        batch.overlap = _overlaps([(_overlap(single), 1) for single in singles])
        return batch

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        new = self.merge(singles)
        counts = len(batch.positions), len(new.positions)
        for name in ("buf_kv", "buf_gate", "pooled"):
            both = getattr(batch, name), getattr(new, name)
            setattr(batch, name, _stacked(list(zip(both, counts, strict=True))))
        both = batch.overlap, new.overlap
        batch.overlap = _overlaps(list(zip(both, counts, strict=True)))
        batch.positions = [*batch.positions, *new.positions]

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        batch.positions = list(positions)
        if batch.buf_kv is not None:
            batch.buf_kv = some_rows(batch.buf_kv, keep)
            batch.buf_gate = some_rows(batch.buf_gate, keep)
        if batch.pooled is not None:
            longest = max(batch.lengths)
            batch.pooled = some_rows(batch.pooled[:, :longest], keep) if longest else None
        if batch.overlap is not None:
            batch.overlap = tuple(some_rows(array, keep) for array in batch.overlap)

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        own = slice(row, row + 1)
        if batch.buf_kv is not None:
            fresh.buf_kv, fresh.buf_gate = (
                mx.contiguous(array[own]) for array in (batch.buf_kv, batch.buf_gate)
            )
        fresh.remainder = position % batch.ratio
        if entries := position // batch.ratio:
            fresh.pooled = mx.contiguous(batch.pooled[own, :entries])
        if batch.overlap is not None:
            fresh.overlap = tuple(mx.contiguous(array[own]) for array in batch.overlap)
        return fresh

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        """Entries with an axis for heads, as windows have; also where there are none yet."""
        if single.buf_kv is None:
            return LayerSnapshot(self.name, position, (None, None, None))
        pooled = single.pooled
        entries = mx.zeros((1, 0, 1), single.buf_kv.dtype) if pooled is None else pooled
        arrays = single.buf_kv, single.buf_gate, entries[:, None], *(_overlap(single) or ())
        return LayerSnapshot(self.name, position, tuple(map(owned, arrays)))

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        buf_kv, buf_gate, pooled, *overlap = map(owned, snapshot.arrays)
        if pooled is None:
            return fresh
        fresh.buf_kv, fresh.buf_gate = buf_kv, buf_gate
        fresh.remainder = snapshot.position % fresh.ratio
        fresh.pooled = pooled[:, 0] if pooled.shape[2] else None
        if overlap:
            fresh.overlap = tuple(overlap)
        return fresh

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        held = layer.buf_kv, layer.buf_gate, layer.pooled, *(_overlap(layer) or ())
        yield from (array for array in held if array is not None)

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        if single.buf_kv is None:
            return []
        waiting = [single.buf_kv, single.buf_gate, *(_overlap(single) or ())]
        # Before there is one, an entry is taken to be as wide as what it is made of.
        one = single.buf_kv if single.pooled is None else single.pooled
        each = -(-one.nbytes // one.shape[1] // single.ratio)
        fixed = sum(array.nbytes for array in waiting)
        return [LayerFootprint(each, fixed=fixed, buffers=len(waiting) + 1)]

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        batch = isinstance(layer, PoolingBatch)
        held = layer.positions if batch else [_position(layer)]
        self.require(held == list(positions), f"{held} tokens, rows {list(positions)}")
        for array in self.arrays(layer):
            rows = array.shape[0]
            self.require(rows == len(positions), f"{rows} rows for {len(positions)}")
        entries = max(position // layer.ratio for position in positions)
        room = 0 if layer.pooled is None else layer.pooled.shape[1]
        self.require(room >= entries, f"room for {room} of {entries} entries")


def _position(single: Layer) -> int:
    return int(single.size() * single.ratio + single.remainder)


def _overlap(layer: Layer) -> Overlap | None:
    return getattr(layer, "overlap", None)


def _stacked(parts: Sequence[tuple[mx.array | None, int]], empty: float = 0.0) -> mx.array | None:
    """Arrays [rows, entries, D] as one, with room for the most entries; None is so many rows."""
    like = next((array for array, _ in parts if array is not None), None)
    if like is None:
        return None
    longest = max(array.shape[1] for array, _ in parts if array is not None)
    width = like.shape[2]
    whole = []
    for array, rows in parts:
        if array is None:
            whole.append(mx.full((rows, longest, width), empty, like.dtype))
        else:
            whole.append(mx.pad(array, [(0, 0), (0, longest - array.shape[1]), (0, 0)]))
    return mx.concatenate(whole)


def _overlaps(parts: Sequence[tuple[Overlap | None, int]]) -> Overlap | None:
    """A row without a pool has nothing for the next to look at: its gates let nothing through."""
    keys = _stacked([(one and one[0], rows) for one, rows in parts])
    gates = _stacked([(one and one[1], rows) for one, rows in parts], -float("inf"))
    return None if keys is None or gates is None else (keys, gates)
