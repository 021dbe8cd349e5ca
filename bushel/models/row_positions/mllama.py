"""Llama 3.2 Vision: its rotary positions by row, and the pictures that each row looks at."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx

from bushel.models.row_positions.heads import join_heads, split_heads


def install(network: Any) -> None:
    for layer in network.language_model.model.layers:
        if hasattr(layer, "cross_attn"):
            layer.__class__ = _with_pictures_by_row(layer.__class__)
        else:
            layer.self_attn.__class__ = _with_positions_by_row(layer.self_attn.__class__)


@cache
def _with_positions_by_row(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class MllamaByRow(library):
        def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
            offset = getattr(cache, "offset", None)
            if not isinstance(offset, mx.array):
                return super().__call__(x, mask, cache)
            queries = split_heads(self.q_proj(x), self.num_heads)
            keys = split_heads(self.k_proj(x), self.num_key_value_heads)
            values = split_heads(self.v_proj(x), self.num_key_value_heads)
            queries, keys = (self.rope(each, offset=offset) for each in (queries, keys))
            keys, values = cache.update_and_fetch(keys, values)
            # Looked up here: what reads pages replaces it.
            output = module.scaled_dot_product_attention(
                queries, keys, values, cache, scale=self.scale, mask=mask
            )
            return self.o_proj(join_heads(output))

    return MllamaByRow


@cache
def _with_pictures_by_row(library: Any) -> Any:
    class CrossAttentionByRow(library):
        def __call__(
            self, hidden_states: mx.array, *args: Any, cache: Any = None, **kwargs: Any
        ) -> mx.array:
            memories = getattr(cache, "rows", None)  # of `vision.cross_attention`
            if memories is None:
                return super().__call__(hidden_states, *args, cache=cache, **kwargs)
            h, tokens = hidden_states, hidden_states.shape[1]
            asking, attended, shown = self.input_layernorm(h), [], []
            for at, memory in enumerate(memories):
                states, mask, written = memory.of_next(tokens)
                attended.append(self.cross_attn(asking[at : at + 1], states, mask, memory))
                shown.append(mx.ones((1, tokens, 1)) if written is None else written[:, 0])
            h = h + mx.tanh(self.cross_attn_attn_gate) * mx.concatenate(attended)
            out = self.mlp(self.post_attention_layernorm(h))
            out = mx.concatenate(shown).astype(out.dtype) * out
            return h + mx.tanh(self.cross_attn_mlp_gate) * out

    return CrossAttentionByRow
