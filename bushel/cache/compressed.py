"""Compressed attention: a window of the last tokens, and one entry for every group before (V4.1).

groups of four, a window of six

tokens   a b c d e f g h i j k
groups   [ abcd ][ efgh ]             entries, and their index keys
open                      i j k       what the next entry will be made of
window             f g h i j k

Entries are rounded and tokens of the window are gone: going back means restoring a snapshot.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import mlx.core as mx

from bushel.cache.layer_kind import Layer, LayerSnapshot, owned
from bushel.cache.row_list import ByRow
from bushel.core.footprint import LayerFootprint

Arrays = tuple[mx.array | None, ...]
_ENTRIES, _OPEN = ("compress_kv", "index_k"), ("pending_kv", "pending_gate")


class Compressed(ByRow):
    """One layer, as mlx-lm has it."""

    name = "compressed"
    sized_after = 256  # a group or more of every checkpoint there is

    def merge(self, singles: Sequence[Layer]) -> Layer:
        for single in singles:
            # Ends of what the last chunk of its prompt was, which would stay as a whole.
            for name in ("window", *_OPEN):
                setattr(single, name, owned(getattr(single, name)))
        return super().merge(singles)

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        super().join(batch, self.merge(singles).rows)

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        # A group that has just been closed leaves arrays of no tokens, which nobody reads.
        held = (array if array is not None and array.size else None for array in self._held(single))
        return LayerSnapshot(self.name, position, tuple(map(owned, held)), varies=True)

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        self._hold(fresh, tuple(map(owned, snapshot.arrays)), snapshot.position)
        return fresh

    def _held(self, single: Layer) -> Sequence[mx.array | None]:
        return [getattr(single, name) for name in ("window", *_ENTRIES, *_OPEN)]

    def _hold(self, fresh: Layer, arrays: Arrays, position: int) -> None:
        for name, array in zip(("window", *_ENTRIES, *_OPEN), arrays, strict=True):
            setattr(fresh, name, array)
        fresh.offset = position

    def single_arrays(self, single: Layer) -> Iterator[mx.array]:
        yield from (array for array in self._held(single) if array is not None)

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        window, entries, keys, *group = self._held(single)
        assert window is not None
        sizes = [LayerFootprint(window.nbytes // window.shape[1], single.window_size, buffers=1)]
        if entries is not None:
            ratio = -(-position // entries.shape[1])
            wide = sum(array.shape[2] * 4 for array in group if array is not None)
            grown = sum(array.nbytes for array in (entries, keys) if array is not None)
            sizes.append(LayerFootprint(-(-grown // position), fixed=ratio * wide, buffers=4))
        return sizes

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        super().check(layer, positions)
        offsets = [row.offset for row in getattr(layer, "rows", [layer])]
        self.require(offsets == list(positions), f"offsets {offsets}, rows {list(positions)}")


class CompressedModel(Compressed):
    """All layers in one state, as mlx-vlm has it; its batches are lists of rows as well."""

    def merge(self, singles: Sequence[Layer]) -> Layer:
        library = sys.modules[type(singles[0]).__module__]
        return library.BatchDeepseekV41Cache(list(singles))

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        batch.extend(self.merge(singles))

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        batch.filter(list(keep))

    def _held(self, single: Layer) -> Sequence[mx.array | None]:
        held: list[mx.array] = single.state
        return held

    def _hold(self, fresh: Layer, arrays: Arrays, position: int) -> None:
        fresh.state = [mx.zeros((0,)) if array is None else array for array in arrays]
        fresh.meta_state = (str(position),)

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        profile = single.memory_profile(position)
        buffers = sum(1 for _ in self.single_arrays(single))
        each = -(-int(profile.bytes_per_token * position) // position)
        return [LayerFootprint(each, fixed=int(profile.fixed_bytes), buffers=buffers)]
