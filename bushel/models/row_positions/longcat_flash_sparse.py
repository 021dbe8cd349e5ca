"""LongCat Flash Sparse: the first and the nearest tokens, which its index always takes, by row.

The last few ids that it remembers are as many from the start, so that rows have one length.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx


def install(network: Any) -> None:
    body = network.language_model.model
    if body.use_ngram:
        body.ngram_embeddings.__class__ = _with_whole_context(body.ngram_embeddings.__class__)
    for layer in network.layers:
        for attention in layer.self_attn:
            if (indexer := attention.indexer) is not None:
                indexer.__class__ = _indexing_by_row(indexer.__class__)


@cache
def _with_whole_context(library: Any) -> Any:
    class WholeContext(library):
        def __call__(self, input_ids: mx.array, cache: Any = None) -> mx.array:
            if cache is not None and cache[0] is None:
                # An id that is not there counts as 0.
                cache[0] = mx.zeros((len(input_ids), self.n - 1), mx.int64)
            return super().__call__(input_ids, cache)

    return WholeContext


@cache
def _indexing_by_row(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class SparseIndexByRow(library):
        def __call__(self, x: mx.array, qr: mx.array, mask: Any, cache: Any = None) -> Any:
            offset = getattr(cache, "offset", None)
            if not isinstance(offset, mx.array):
                return super().__call__(x, qr, mask, cache)
            rows, tokens, _ = x.shape
            queries = self.wq_b(qr).reshape(rows, tokens, self.n_heads, -1).swapaxes(1, 2)
            queries = self.rope(queries, offset=offset)
            keys = self.k_norm(self.wk(x)).reshape(rows, 1, tokens, self.head_dim)
            keys = self.rope(keys, offset=offset)
            here = (offset[:, None] + mx.arange(tokens))[:, None, :, None]
            keys, _ = cache.update_and_fetch(keys, mx.zeros((rows, 1, tokens, 0), keys.dtype))
            columns = keys.shape[2]
            if columns <= self.index_topk:
                return None
            places = (mx.arange(columns) - cache.left_padding[:, None])[:, None, None, :]
            taken = places < self.index_init_tokens
            taken = taken | (places > here - self.index_local_tokens)
            scores = mx.where(taken, mx.inf, self._scores(x, queries, keys))
            # Before a row's first token and behind the one that looks, nothing is taken.
            scores = mx.where((places >= 0) & (places <= here), scores, -mx.inf)
            chosen = mx.argpartition(scores, kth=-self.index_topk, axis=-1)
            return chosen[..., -self.index_topk :]

        def _scores(self, x: mx.array, queries: mx.array, keys: mx.array) -> mx.array:
            """[B, 1, T, columns], of all index heads together."""
            weights, scale = self.weights_proj(x), self.n_heads**-0.5 * self.softmax_scale
            if module.indexer_dense_scores_available(queries.dtype, self.n_heads, self.head_dim):
                return module.indexer_dense_scores(queries, keys[:, 0], weights, scale)[:, None]
            scores = mx.maximum(queries @ keys.swapaxes(-1, -2), 0)
            weights = (weights * scale).swapaxes(-1, -2)[..., None]
            return (scores * weights).sum(axis=1, keepdims=True)

    return SparseIndexByRow
