"""Inkling: how much its queries grow beyond a border, by each row's own length."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx

from bushel.models.row_positions.heads import join_heads


def install(network: Any) -> None:
    for layer in network.language_model.model.layers:
        attention = layer.self_attn
        if attention.log_floor is not None:
            attention.__class__ = _with_scales_by_row(attention.__class__)


@cache
def _with_scales_by_row(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class InklingByRow(library):
        """Of layers without a window: the library scales those alone."""

        def __call__(self, x: mx.array, cache: Any = None, conv_mask: Any = None) -> mx.array:
            # The library takes the columns of a batch for positions, those of padding too.
            if cache is None or not isinstance(cache[0].offset, mx.array):
                return super().__call__(x, cache, conv_mask)
            tokens, (state, conv) = x.shape[1], (cache[0], cache[1])
            scales = self._scales(state.offset, tokens).astype(x.dtype)
            ends = [sum(self.qkvr_dims[:count]) for count in (1, 2, 3)]
            queries, keys, values, relative = mx.split(self.qkvr_proj(x), ends, axis=-1)
            keys = self.k_sconv(keys, cache=conv, mask=conv_mask)
            values = self.v_sconv(values, cache=conv, mask=conv_mask)
            keys = self.k_norm(self._heads(keys, self.n_kv)).transpose(0, 2, 1, 3)
            values = self._heads(values, self.n_kv).transpose(0, 2, 1, 3)
            queries = self.q_norm(self._heads(queries, self.n_heads)).transpose(0, 2, 1, 3)
            keys, values = state.update_and_fetch(keys, values)
            mask = module.banded_additive_mask(
                self._heads(relative, self.n_heads),
                self.rel_proj.astype(x.dtype),
                keys.shape[2] - tokens,
                keys.shape[2],
                self.sliding,
                self.rel_extent,
                left_padding=getattr(state, "left_padding", None),
                shape_ref=keys,
            )
            # What nobody sees stays finite.
            mask = mx.where(mask > -1e29, mask * scales, mask)
            output = module.scaled_dot_product_attention(
                queries * scales, keys, values, cache=None, scale=self.scale, mask=mask
            )
            return self.o_proj(join_heads(output))

        def _heads(self, x: mx.array, heads: int) -> mx.array:
            return x.reshape(*x.shape[:2], heads, -1)

        def _scales(self, rows: mx.array, tokens: int) -> mx.array:
            places = (rows[:, None] + mx.arange(1, tokens + 1)).astype(mx.float32)
            scales = 1.0 + self.log_alpha * mx.log(mx.maximum(places / self.log_floor, 1.0))
            return scales[:, None, :, None]

    return InklingByRow
