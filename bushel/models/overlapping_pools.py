"""DeepSeek V4: entries of its pools, whichever way a text is cut, and the index over all of them.

tokens    a b c d | e f g h | i j k l        pools of four
entry 0   a b c d                            an entry looks at its own tokens,
entry 1   a b c d   e f g h                  and at those of the pool before it
entry 2             e f g h   i j k l

mlx-vlm forgets the pool before with every call: the first entry of a chunk, and every entry of a
reply, look at their own tokens alone. What a model says then depends on how its prompt is cut, and
a prefix that was kept would be another than the one that is computed. So the last pool is kept, as
transformers' model of the family keeps it.

Its index over more than a thousand entries looks at blocks of them first. Blocks are counted from
the end of a chunk, and a query's block holds entries of later tokens. The index here looks at every
entry, as the model was trained to; one tile of queries after the other.

Importing this imports mlx_vlm.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_vlm.models.cache import PoolingCache
from mlx_vlm.models.deepseek_v4.language import Compressor, Indexer

# Queries whose scores are there at once: 64 heads over the 32,000 entries of 128k tokens take 0.5
# GB, and in a chunk of 2,048 they would take 17.
_TILE = 64


class OverlapPoolingCache(PoolingCache):
    """Also keeps what the next entry looks at: half of the last pool's keys and gates."""

    overlap: tuple[mx.array, mx.array] | None = None

    @property
    def state(self) -> tuple[Any, ...]:
        return *super().state, *(self.overlap or ())

    def keep_overlap(self, kv: mx.array, gate: mx.array) -> None:
        self.overlap = kv, gate


class OverlapCompressor(Compressor):
    def __call__(self, x: mx.array, pool_cache: Any, offset: Any) -> mx.array:
        if not self.overlap or pool_cache is None:
            return super().__call__(x, pool_cache, offset)
        kv, gate = self.wkv(x), self.wgate(x)
        if pool_cache.overlap is None:
            rows, width = x.shape[0], (self.compress_ratio, self.head_dim)
            nothing = mx.full((rows, *width), -mx.inf, gate.dtype)
            pool_cache.overlap = mx.zeros((rows, *width), kv.dtype), nothing
        kv, gate, start = pool_cache.accumulate_windows(kv, gate, offset)
        if kv.size == 0:
            return pool_cache.update_and_fetch(mx.zeros((x.shape[0], 0, self.head_dim), x.dtype))
        entries = self.norm(self._entries(kv, gate, pool_cache))
        return pool_cache.update_and_fetch(self.rope(entries[:, None], offset=start).squeeze(1))

    def _entries(self, kv: mx.array, gate: mx.array, pool_cache: Any) -> mx.array:
        pools = (-1, self.compress_ratio)
        kv, gate = mx.unflatten(kv, 1, pools), mx.unflatten(gate, 1, pools)
        gate = gate + self.ape.astype(gate.dtype)
        (for_next, own), (gate_next, own_gate) = (mx.split(it, 2, axis=-1) for it in (kv, gate))
        before, before_gate = pool_cache.overlap
        pool_cache.keep_overlap(for_next[:, -1], gate_next[:, -1])
        earlier = mx.concatenate([before[:, None], for_next[:, :-1]], axis=1)
        earlier_gate = mx.concatenate([before_gate[:, None], gate_next[:, :-1]], axis=1)
        weights = mx.concatenate([earlier_gate, own_gate], axis=2)
        weights = mx.softmax(weights, axis=2, precise=True)
        return (mx.concatenate([earlier, own], axis=2) * weights).sum(axis=2)


class WholeIndexer(Indexer):
    def __call__(
        self, x: mx.array, q_residual: mx.array, position_rope: Any, pool_cache: Any, offset: Any
    ) -> mx.array | None:
        rows, tokens, _ = x.shape
        entries = self.compressor(x, pool_cache, offset)
        if entries.shape[1] == 0:
            return None
        queries = self.wq_b(q_residual).reshape(rows, tokens, self.n_heads, self.head_dim)
        queries = position_rope(queries.transpose(0, 2, 1, 3), offset).astype(mx.float32)
        weights = self.weights_proj(x).astype(mx.float32) * self.n_heads**-0.5
        mask = None if pool_cache is None else pool_cache.make_mask(tokens, offset)
        if mask is not None:
            mask = mx.broadcast_to(mask, (rows, tokens, entries.shape[1]))
        keys = entries[:, None].swapaxes(-1, -2).astype(mx.float32)
        tiles = []
        for start in range(0, tokens, _TILE):
            tile = slice(start, start + _TILE)
            scores = mx.maximum(queries[:, :, tile] @ keys, 0) * self.scale
            scores = (scores * weights[:, tile].swapaxes(-1, -2)[..., None]).sum(axis=1)
            if mask is not None:
                scores = mx.where(mask[:, tile], scores, mx.finfo(scores.dtype).min)
            tiles.append(self._best(scores))
        return tiles[0] if len(tiles) == 1 else mx.concatenate(tiles, axis=1)

    def _best(self, scores: mx.array) -> mx.array:
        count = min(self.index_topk, scores.shape[-1])
        return mx.argpartition(-scores, kth=count - 1, axis=-1)[..., :count]


_MENDED = {Compressor: OverlapCompressor, Indexer: WholeIndexer}


def install(network: Any) -> None:
    for part in network.modules():
        if type(part) in _MENDED:
            part.__class__ = _MENDED[type(part)]


def overlapping(network: Any, state: list[Any]) -> list[Any]:
    """Fresh state, in which pools that overlap keep what the next one looks at."""
    for layer, held in zip(network.layers, state, strict=True):
        if getattr(getattr(layer.attn, "compressor", None), "overlap", False):
            window, *pools = held.caches
            held.caches = (window, *(OverlapPoolingCache(pool.ratio) for pool in pools))
    return state
