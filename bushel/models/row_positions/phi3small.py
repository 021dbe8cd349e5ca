"""Phi-3-small: the blocks of its sparse layers, counted from each row's own beginning."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx

from bushel.models.row_positions.heads import join_heads


def install(network: Any) -> None:
    for layer in network.model.layers:
        layer.self_attn.__class__ = _with_blocks_by_row(layer.self_attn.__class__)


@cache
def _with_blocks_by_row(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class Phi3SmallByRow(library):
        def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
            offset = getattr(cache, "offset", None)
            if not isinstance(offset, mx.array):
                return super().__call__(x, mask, cache)
            rows, tokens, _ = x.shape
            each = self.query_key_value(x).reshape(rows, tokens, self.n_kv_heads, -1, self.head_dim)
            queries = self.rope(each[..., :-2, :].flatten(2, 3).transpose(0, 2, 1, 3), offset)
            keys, values = (each[..., at, :].transpose(0, 2, 1, 3) for at in (-2, -1))
            keys, values = cache.update_and_fetch(self.rope(keys, offset), values)
            if self.block_sparse:
                mask = mask & self._in_blocks(offset, tokens, keys.shape[2])
            output = module.scaled_dot_product_attention(
                queries, keys, values, cache=cache, scale=self.scale, mask=mask
            )
            return self.dense(join_heads(output))

        def _in_blocks(self, offset: mx.array, tokens: int, columns: int) -> mx.array:
            """[B, H, T, K] of new tokens: rows end together, so that columns tell positions."""
            held = offset[:, None] + mx.arange(tokens - columns, tokens)
            held = held[:, None, None] // self.blocksparse_block_size
            asking = (offset[:, None] + mx.arange(tokens)) // self.blocksparse_block_size
            near = asking[:, None, :, None] - held < self.blocksparse_num_local_blocks
            heads = mx.arange(1, self.n_heads + 1)[:, None, None]
            return near | ((held + heads) % self.blocksparse_vert_stride == 0)

    return Phi3SmallByRow
