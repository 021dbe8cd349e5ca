"""Lone rows as one batch for a forward pass over prompts, in which each runs all of its own tokens.

row 0    a b c d e f g h      each from its own position on
row 1    a b c . . . . .      what is beyond a row's end is seen by nobody before it, and a
row 2    a b c d e . . .      recurrent layer, which is told where rows end, does not eat it
"""

from __future__ import annotations

from collections.abc import Sequence

from bushel.cache.kinds import kind_of
from bushel.cache.layer_kind import Layer
from bushel.cache.packed_kv import PackedKVCache
from bushel.cache.paged.paged_kv import pageable

_RECURRENT = "ArraysCache"  # of both libraries; layers ask it where rows end
_COMPOSITE = "CacheList"


def packable(layer: Layer) -> bool:
    """Whether rows of such a layer may be packed."""
    if type(layer).__name__ == _COMPOSITE:
        return all(map(packable, layer.caches))
    return pageable(layer) or type(layer).__name__ == _RECURRENT


def pack(singles: Sequence[Layer], counts: Sequence[int]) -> Layer:
    """counts: tokens that each row runs in the pass."""
    first = singles[0]
    if type(first).__name__ == _COMPOSITE:
        columns = zip(*(single.caches for single in singles), strict=True)
        return type(first)(*(pack(column, counts) for column in columns))
    if type(first).__name__ != _RECURRENT:
        return PackedKVCache(singles, counts)
    batch = kind_of(first).merge(singles)
    batch.prepare(lengths=counts)
    return batch


def unpack(batch: Layer, singles: Sequence[Layer]) -> None:
    """After the pass: every row has what is its own."""
    if type(batch).__name__ == _COMPOSITE:
        columns = zip(*(single.caches for single in singles), strict=True)
        for part, column in zip(batch.caches, columns, strict=True):
            unpack(part, column)
    elif type(batch).__name__ == _RECURRENT:
        for row, single in enumerate(singles):
            kind_of(batch).single(batch, row, 0, single)
