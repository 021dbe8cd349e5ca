"""What a run of tokens left in the layers that append, in as few buffers as possible.

    layers with the same heads and dtype are one array   [layers x keys and values, H, tokens, D]

`SegmentLayout` knows which array of which layer is where. Layers that a model never writes have
none. A segment knows whose state it is: a row is made of segments only if their tokens are its
own, one after the other, without a hole.

    row      |<------------- key[:position] ------------->|
    slabs    |-- [0, 10) --|-- [10, 60) --|-- [60, 110) --|---|      of the last, its beginning
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from bushel.cache.kinds import kind_of
from bushel.cache.layer_kind import Layer, LayerKind, owned
from bushel.cache.prefix.token_key import Key
from bushel.core import IntegrityError
from bushel.core.footprint import STEP

_GROUPS = (64, 32)  # numbers that share a scale, if the width of a head allows it
_Shape = tuple[int, int, mx.Dtype]  # heads, width, and what of


def parts_of(state: Sequence[Layer]) -> list[tuple[LayerKind, Layer]]:
    """All states of a row or batch that are not made of others, in order."""
    return [part for layer in state for part in kind_of(layer).parts(layer)]


@dataclass(frozen=True)
class SegmentSlot:
    part: int  # of `parts_of`
    at: int  # among the arrays it has stored


@dataclass(frozen=True)
class SegmentGroup:
    """Slots whose arrays are alike."""

    heads: int
    width: int
    dtype: mx.Dtype
    slots: tuple[SegmentSlot, ...]
    bits: int | None = None
    scale: int = 0  # numbers that share one

    @property
    def arrays(self) -> int:
        return 1 if self.bits is None else 3

    def encode(self, array: mx.array) -> tuple[mx.array, ...]:
        if self.bits is None:
            return (array,)
        return tuple(mx.quantize(array, group_size=self.scale, bits=self.bits))

    def decode(self, arrays: Sequence[mx.array]) -> mx.array:
        if self.bits is None:
            return arrays[0]
        packed, scales, biases = arrays
        return mx.dequantize(packed, scales, biases, group_size=self.scale, bits=self.bits).astype(
            self.dtype
        )


@dataclass(frozen=True)
class SegmentLayout:
    groups: tuple[SegmentGroup, ...]
    parts: int

    @classmethod
    def of(cls, state: Sequence[Layer], bits: int | None = None) -> SegmentLayout:
        """From a single row that has run a token. bits: of plain keys and values when kept."""
        alike: dict[tuple[_Shape, bool], list[SegmentSlot]] = {}
        parts = parts_of(state)
        for part, (kind, layer) in enumerate(parts):
            arrays = kind.cut(layer, 0, 1, 0, 1) if kind.appends else ()
            for at, array in enumerate(arrays):
                shape = array.shape[1], array.shape[3], array.dtype
                exact = bits is None or at in kind.lossless
                alike.setdefault((shape, exact), []).append(SegmentSlot(part, at))
        return cls(
            tuple(
                SegmentGroup(*shape, tuple(slots), *_encoding(shape, None if exact else bits))
                for (shape, exact), slots in alike.items()
            ),
            len(parts),
        )

    def cut(self, state: Sequence[Layer], row: int, key: Key, start: int, end: int) -> KVSegment:
        """Tokens [start, end) of a row that has run those of `key`: owned, not evaluated."""
        by_part = [
            kind.cut(layer, row, len(key), start, end) if kind.appends else ()
            for kind, layer in parts_of(state)
        ]
        arrays: list[mx.array] = []
        for group in self.groups:
            pieces = [by_part[slot.part][slot.at] for slot in group.slots]
            whole = mx.concatenate(pieces) if len(pieces) > 1 else owned(pieces[0])
            assert whole is not None
            arrays.extend(group.encode(whole))
        return KVSegment(self, tuple(arrays), start, key[start:end].copy())

    def assemble(
        self, segments: Sequence[KVSegment], key: Key, length: int, fresh: Sequence[Layer]
    ) -> None:
        """Let a fresh row hold the tokens of `key`, with room for `length`.

        IntegrityError unless the slabs are of exactly these tokens, each where the one before ends.
        """
        position = len(key)
        self._check_joined(segments, key)
        room = -(-length // STEP) * STEP - position
        by_part: list[dict[int, mx.array]] = [{} for _ in range(self.parts)]
        for at, group in enumerate(self.groups):
            pieces = [segment.group(at) for segment in segments]
            shape = (1, group.heads, room, group.width)
            for member, slot in enumerate(group.slots):
                own = [
                    group.decode([array[member : member + 1] for array in piece])
                    for piece in pieces
                ]
                extra = sum(array.shape[2] for array in own) - position
                if extra > 0:
                    own[-1] = own[-1][:, :, : own[-1].shape[2] - extra]
                if room > 0:
                    own.append(mx.zeros(shape, group.dtype))
                whole = mx.concatenate(own, axis=2) if len(own) > 1 else owned(own[0])
                assert whole is not None
                by_part[slot.part][slot.at] = whole
        for (kind, layer), arrays in zip(parts_of(fresh), by_part, strict=True):
            if kind.appends:
                kind.assemble([arrays[at] for at in sorted(arrays)], position, layer)

    def _check_joined(self, segments: Sequence[KVSegment], key: Key) -> None:
        """Whether they are the state of these tokens: no hole, no overlap, no others' tokens."""
        at = 0
        for segment in segments:
            if segment.start != at or not self._shaped(segment):
                raise IntegrityError(f"state of tokens from {segment.start} on, instead of {at}")
            there = key[at : segment.end]
            if not len(there) or not np.array_equal(segment.key[: len(there)], there):
                raise IntegrityError(f"state of other tokens, from {at} to {segment.end}")
            at = segment.end
        if at < len(key):
            raise IntegrityError(f"{len(key) - at} of {len(key)} tokens are not there")

    def fits(self, segment: KVSegment) -> bool:
        """Whether a slab that comes from elsewhere has the arrays that one of ours would have."""
        wanted = (group.dtype if group.bits is None else mx.uint32 for group in self.groups)
        return self._shaped(segment) and all(
            segment.group(at)[0].dtype == dtype for at, dtype in enumerate(wanted)
        )

    def _shaped(self, segment: KVSegment) -> bool:
        """Whether its arrays are those that these layers leave of so many tokens."""
        if len(segment.arrays) != sum(group.arrays for group in self.groups):
            return False
        for at, group in enumerate(self.groups):
            first, *scales = segment.group(at)
            width = group.width if group.bits is None else group.width * group.bits // 32
            shape = len(group.slots), group.heads, len(segment.key)
            if first.shape != (*shape, width) or any(scale.shape[:3] != shape for scale in scales):
                return False
        return True


@dataclass(frozen=True, eq=False)
class KVSegment:
    """An edge of the tree. Its arrays are contiguous, and nothing writes into them."""

    layout: SegmentLayout
    arrays: tuple[mx.array, ...]
    start: int  # tokens before it
    key: Key  # its own

    @property
    def end(self) -> int:
        return self.start + len(self.key)

    def covers(self, start: int, key: Key) -> bool:
        return self.start == start and np.array_equal(self.key, key)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    @property
    def buffers(self) -> int:
        return len(self.arrays)

    @property
    def split_cost(self) -> tuple[int, int]:
        """Until the halves are made, the whole is there as well."""
        return self.nbytes, 2 * self.buffers

    def segment(self) -> KVSegment:
        return self

    def group(self, at: int) -> tuple[mx.array, ...]:
        """Its arrays of one group, however that is encoded."""
        first = sum(group.arrays for group in self.layout.groups[:at])
        return self.arrays[first : first + self.layout.groups[at].arrays]

    def split(self, at: int) -> tuple[KVSegment, KVSegment]:
        halves = self.between(0, at), self.between(at, len(self.key))
        mx.eval([half.arrays for half in halves])
        return halves

    def between(self, start: int, end: int) -> KVSegment:
        """Of its own tokens, those from `start` to `end`."""
        cut = (owned(array[:, :, start:end]) for array in self.arrays)
        arrays = tuple(array for array in cut if array is not None)
        return KVSegment(self.layout, arrays, self.start + start, self.key[start:end].copy())


def _encoding(shape: _Shape, bits: int | None) -> tuple[int | None, int]:
    _, width, dtype = shape
    scale = next((group for group in _GROUPS if width and width % group == 0), 0)
    plain = bits is None or not scale or not mx.issubdtype(dtype, mx.floating)
    return (None, 0) if plain else (bits, scale)
