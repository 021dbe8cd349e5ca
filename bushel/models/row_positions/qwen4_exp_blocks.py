"""Qwen 4: the keys of blocks that a batch's rows have filled, kept from step to step.

Where rows are padded the library makes the keys of all their blocks anew at every step, from all of
their tokens. But a step's token is in one block of its row, and ends it or does not:

row 0  a b c d|e f g h|i j k       k is in block 10 // 4, which is not whole yet
row 1  . . . a b c d|e f g h       h ends block 7 // 4: the last four columns are its tokens

A block that is not whole holds what nobody looks at, until its last token writes it anew. To choose
for four rows of 5,000 to 8,192 tokens takes 10 ms of a CPU a layer so, and 65 the library's way.
"""

from __future__ import annotations

import math
from functools import cache
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

_ROOM = 64  # blocks: an array with a place for each grows by so many


@cache
def with_blocks_by_row(library: Any) -> Any:
    """library: the class of an indexer."""

    class IndexerByRow(library):
        def select_from_projected(self, qk: mx.array, cache: Any, position_ids: Any) -> Any:
            several = isinstance(getattr(cache, "offset", None), mx.array)
            if not several or qk.shape[1] > 1 or position_ids is None:
                return super().select_from_projected(qk, cache, position_ids)
            qk = qk.reshape(*qk.shape[:2], self.n_heads + self.kv_heads, self.head_dim)
            keys, places = cache.update_indexer(qk[:, :, self.n_heads], position_ids)
            if keys.shape[1] // self.compress_ratio <= self.block_topk:
                return None
            scores = self._scores(qk[:, :, : self.n_heads], position_ids, cache, keys, places)
            whole = (cache.offset[:, None] + 1) // self.compress_ratio
            there = mx.arange(scores.shape[-1]) < whole[..., None]
            scores = mx.where(there, scores, -mx.inf)
            best = mx.argpartition(scores, kth=-self.block_topk, axis=-1)[..., -self.block_topk :]
            best = best.astype(mx.int32)
            return SimpleNamespace(
                selected_blocks=mx.where(best < whole[..., None], best, -1),
                query_ends=mx.full(whole.shape, keys.shape[1], mx.int32),
                complete_counts=whole,
                left_padding=cache.left_padding.astype(mx.int32),
                key_len=keys.shape[1],
                zero_padding=False,
            )

        def _scores(
            self, queries: mx.array, position_ids: Any, cache: Any, keys: mx.array, places: mx.array
        ) -> mx.array:
            """[B, 1, blocks], in float32 like the library's: which are best is all or nothing."""
            queries = self.q_layernorm(queries).swapaxes(1, 2)
            queries = self._apply_rope(queries, position_ids).astype(mx.float32)
            blocks = self._blocks(cache, keys, places).astype(mx.float32)
            each = mx.maximum(queries @ blocks.swapaxes(2, 3), 0)
            return each.sum(axis=1) / math.sqrt(self.head_dim)

        def _blocks(self, cache: Any, keys: mx.array, places: mx.array) -> mx.array:
            """[B, 1, N, D] with this step's; the first ones of each row are whole."""
            size, tokens = self.compress_ratio, keys.shape[1]
            blocks = cache.index_block_keys
            if blocks is None:
                blocks = self._all_blocks(cache, keys, places)
            else:
                first = tokens - size
                newest = self._of_tokens(keys[:, None, first:], places[..., first : first + 1])
                at = (cache.offset // size)[:, None, None, None]
                blocks = mx.put_along_axis(blocks, mx.broadcast_to(at, newest.shape), newest, 2)
            if tokens // size >= blocks.shape[2]:  # where the next step's token may be
                blocks = mx.pad(blocks, [(0, 0), (0, 0), (0, _ROOM), (0, 0)])
            cache.index_block_keys, cache.index_block_ratio = blocks, size
            return blocks

        def _all_blocks(self, cache: Any, keys: mx.array, places: mx.array) -> mx.array:
            rows, tokens, _ = keys.shape
            row, size = mx.arange(rows)[:, None], self.compress_ratio
            columns = cache.left_padding[:, None] + mx.arange(tokens // size * size)
            columns = mx.minimum(columns, tokens - 1)  # behind a row's last block
            each = keys[row, columns].reshape(rows, -1, size, self.head_dim)
            return self._of_tokens(each, places[:, row, columns[:, ::size]])

        def _of_tokens(self, keys: mx.array, places: mx.array) -> mx.array:
            """Of blocks [B, N, tokens, D], each at its first token's place."""
            mean = keys.astype(mx.float32).mean(axis=2).astype(keys.dtype)
            return self._apply_rope(self.k_layernorm(mean)[:, None], places)

    return IndexerByRow
