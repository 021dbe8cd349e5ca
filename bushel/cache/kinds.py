"""Which kind a layer is: decided layer by layer, by what it is, never by its neighbours (B2)."""

from __future__ import annotations

from collections.abc import Sequence

from bushel.cache.chunked import ChunkedKV
from bushel.cache.composite import Composite
from bushel.cache.compressed import Compressed, CompressedModel
from bushel.cache.fixed import Fixed
from bushel.cache.indexed_kv import IndexedKV
from bushel.cache.kv_cache import KV
from bushel.cache.layer_kind import Layer, LayerKind
from bushel.cache.opaque import Opaque
from bushel.cache.paged.paged_kv import PagedKV
from bushel.cache.pooled_kv import PooledKV
from bushel.cache.quantized_kv import Quantized
from bushel.cache.ragged.kinds import RaggedKV, RaggedWindow
from bushel.cache.recurrent import Recurrent
from bushel.cache.reply_ring import ReplyRing
from bushel.cache.unkept import Unkept
from bushel.cache.window import Window

_KV, _WINDOW, _RECURRENT, _OPAQUE = KV(), Window(), Recurrent(), Opaque()
_CHUNKED, _INDEXED, _POOLED, _QUANTIZED = ChunkedKV(), IndexedKV(), PooledKV(), Quantized()

# Made of several states, each of a kind of its own.
_COMPOSITES = ("CacheList", "IndexedKVCache")

# By class name, because mlx-lm and mlx-vlm each bring classes of these names. Subclasses are
# not assumed to behave like their parents.
_BY_CLASS: dict[str, LayerKind] = {
    "KVCache": _KV,
    "BatchKVCache": _KV,
    "PagedKVCache": PagedKV(),
    "GroupedKVCache": _KV,
    "BatchGroupedKVCache": _KV,
    "QuantizedKVCache": _QUANTIZED,
    "QuantizedBatch": _QUANTIZED,
    "RotatingKVCache": _WINDOW,
    "BatchRotatingKVCache": _WINDOW,
    "RaggedKVCache": RaggedKV(),
    "RaggedWindowCache": RaggedWindow(),
    "ChunkedKVCache": _CHUNKED,
    "BatchChunkedKVCache": _CHUNKED,
    "QSAKVCache": _INDEXED,
    "BatchQSAKVCache": _INDEXED,
    "PoolingCache": _POOLED,
    "OverlapPoolingCache": _POOLED,
    "PoolingBatch": _POOLED,
    "ArraysCache": _RECURRENT,
    "RunningSums": _RECURRENT,
    "CrossMemory": Fixed(),
    "UnkeptProjections": Unkept(),
    "LayerCache": Compressed(),
    "DeepseekV41Cache": CompressedModel(),
    "RingSlidingKVCache": ReplyRing(),
}
# Batches that are lists of rows.
_LISTS = ("RowList", "BatchDeepseekV41Cache")


def kind_of(layer: Layer) -> LayerKind:
    name = type(layer).__name__
    if name in _COMPOSITES:
        known = all(kind_of(part) is not _OPAQUE for part in layer.caches)
        return _COMPOSITE if known else _OPAQUE
    if name in _LISTS:
        return kind_of(layer.rows[0])
    return _BY_CLASS.get(name, _OPAQUE)


_COMPOSITE = Composite(kind_of)


def unbatchable(state: Sequence[Layer]) -> str | None:
    """Why rows of this state cannot share a batch, or None if they can."""
    for layer in state:
        if isinstance(kind_of(layer), Opaque):
            return f"no batch form of {type(layer).__name__} is known"
        if getattr(layer, "keep", 0):
            return "a sliding window with pinned tokens has no batch form"
    return None
