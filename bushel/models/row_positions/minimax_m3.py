"""MiniMax M3: its sparse attention chooses blocks of keys, here of each row's own tokens."""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx

from bushel.models.row_positions.sparse_blocks import as_columns, best, in_blocks, local

# Blocks that are always taken are ahead of every score.
_FIRST, _LOCAL = 1e30, 1e29
# Keys a row has for one that it looks at: from there on mlx-vlm gathers what it looks at, where
# a mask is given.
_GATHERED = 16


def install(network: Any) -> None:
    """network: of either library."""
    for layer in network.language_model.model.layers:
        attention = layer.self_attn
        if getattr(attention, "is_sparse_attn", False):
            attention.__class__ = _choosing_by_row(attention.__class__)
        elif getattr(attention, "has_sparse_index", False):
            attention.__class__ = _telling_padding(attention.__class__)
            attention.indexer.__class__ = _indexing_by_row(attention.indexer.__class__)


@cache
def _choosing_by_row(library: Any) -> Any:
    """mlx-lm's: every index head chooses for its own group of query heads."""

    class ChoosingByRow(library):
        def _block_mask(self, x: mx.array, mask: Any, offset: Any, cache: Any) -> Any:
            if not isinstance(offset, mx.array):
                return super()._block_mask(x, mask, offset, cache)
            rows, tokens, _ = x.shape
            size, count = self.index_block_size, self.index_topk_blocks
            keys = self._by_head(self.index_k_norm, self.index_k_proj(x), 1, offset)
            keys, _ = cache.update_and_fetch(keys, mx.zeros((rows, 1, tokens, 0), keys.dtype))
            columns, padding = keys.shape[2], cache.left_padding
            if columns <= size * count:
                return mask
            heads = self.index_n_heads
            queries = self._by_head(self.index_q_norm, self.index_q_proj(x), heads, offset)
            scores = queries.astype(mx.float32) @ keys.astype(mx.float32).swapaxes(-1, -2)
            blocks = in_blocks(mx.where(mask, scores, -mx.inf), padding, size).max(axis=-1)
            here = (offset[:, None] + mx.arange(tokens))[:, None, :, None] // size
            near = local(here, blocks.shape[-1], self.index_local_blocks)
            chosen = best(mx.where(near, mx.inf, blocks), count)
            seen = as_columns(chosen, padding, size, columns) & mask
            return mx.repeat(seen, self.num_attention_heads // heads, axis=1)

        def _by_head(self, norm: Any, x: mx.array, heads: int, offset: mx.array) -> mx.array:
            x = norm(x.reshape(*x.shape[:2], heads, -1)).transpose(0, 2, 1, 3)
            return self.index_rope(x, offset=offset)

    return ChoosingByRow


@cache
def _telling_padding(library: Any) -> Any:
    """mlx-vlm's, whose indexer is told how far the rows of a batch are from the first column."""

    class TellingPadding(library):
        def __call__(self, x: mx.array, mask: Any = None, cache: Any = None, **given: Any) -> Any:
            self.indexer.padding = getattr(cache, "left_padding", None)
            return super().__call__(x, mask, cache, **given)

        def _sparse_decode_attention(
            self,
            queries: mx.array,
            keys: mx.array,
            values: mx.array,
            chosen: mx.array,
            mask: Any,
            columns: mx.array,
        ) -> mx.array | None:
            """None: nothing is gathered, and a mask hides what is not chosen."""
            padding, size = self.indexer.padding, self.sparse_block_size
            if padding is None:
                return super()._sparse_decode_attention(
                    queries, keys, values, chosen, mask, columns
                )
            wanted = chosen.shape[-1] * size
            if queries.shape[2] != 1 or keys.shape[2] < _GATHERED * wanted:
                return None
            places = chosen[:, 0, :, None] * size + mx.arange(size) + padding[:, None, None]
            seen = (chosen[:, 0, :, None] >= 0) & (places <= columns[:, :, None])
            places = mx.where(seen, places, 0).reshape(len(padding), 1, wanted, 1)
            return mx.fast.scaled_dot_product_attention(
                queries,
                mx.take_along_axis(keys, places, axis=2),
                mx.take_along_axis(values, places, axis=2),
                scale=self.scale,
                mask=seen.reshape(len(padding), 1, 1, wanted),
            )

    return TellingPadding


@cache
def _indexing_by_row(library: Any) -> Any:
    """mlx-vlm's: all index heads choose together. columns: [B, T], where the new tokens are."""

    class IndexingByRow(library):
        padding: mx.array | None = None  # of the rows of a batch

        def select_blocks(
            self,
            queries: mx.array,
            keys: mx.array,
            start: int,
            mask: Any = None,
            columns: Any = None,
        ) -> mx.array:
            """[B, T, count] blocks, counted by row; -1 for one that a row has not come to."""
            padding = self.padding
            if padding is None:
                return super().select_blocks(queries, keys, start, mask, columns)
            scores = queries.astype(mx.float32) @ keys.astype(mx.float32).swapaxes(-1, -2)
            scores = scores * self.attention.scale
            seen = self._seen(padding, keys.shape[2], columns)
            blocks = in_blocks(mx.where(seen, scores, -mx.inf), padding, self.block_size)
            pool = mx.logsumexp if self.score_type == "lse" else mx.max
            pooled = pool(blocks, axis=-1).max(axis=1)
            pooled = mx.where(mx.isnan(pooled), -mx.inf, pooled)  # of a block without a token
            here = (columns - padding[:, None])[..., None] // self.block_size
            count = pooled.shape[-1]
            first = mx.arange(count) < mx.minimum(self.init_blocks, here + 1)
            pooled = mx.where(first, _FIRST, pooled)
            pooled = mx.where(local(here, count, self.local_blocks), _LOCAL, pooled)
            chosen = best(pooled, self.topk_blocks)
            return mx.where(chosen <= here, chosen, -1)

        def build_block_mask(
            self, chosen: mx.array, mask: Any, length: int, dtype: Any, columns: mx.array
        ) -> mx.array:
            padding = self.padding
            if padding is None:
                return super().build_block_mask(chosen, mask, length, dtype, columns)
            taken = as_columns(chosen[:, None], padding, self.block_size, length)
            return taken & self._seen(padding, length, columns)

        def _seen(self, padding: mx.array, length: int, columns: mx.array) -> mx.array:
            """[B, 1, T, length]: a row's tokens up to the one that looks."""
            each = mx.arange(length)
            own = each >= padding[:, None, None]
            return (own & (each <= columns[:, :, None]))[:, None]

    return IndexingByRow
