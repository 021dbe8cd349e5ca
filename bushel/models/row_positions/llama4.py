"""Llama 4: the mask of its chunked layers and the scales of the others' queries, by row."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx

from bushel.models.row_positions.heads import join_heads, split_heads

_BATCH = "BatchChunkedKVCache"  # of `cache.chunked`, which stands above models


def install(network: Any) -> None:
    """network: of either library."""
    body = network.language_model.model
    body.__class__ = _with_batches(body.__class__)
    for layer in body.layers:
        attention = layer.self_attn
        if attention.attn_temperature_tuning and not attention.use_rope:
            attention.__class__ = _with_scales_by_row(attention.__class__)


@cache
def _with_batches(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class Llama4ByRow(library):
        def __call__(self, input_ids: Any = None, *args: Any, **kwargs: Any) -> mx.array:
            states = (args[0] if args else kwargs.get("cache")) or []
            chunked = [state for state in states if type(state).__name__ == _BATCH]
            if not chunked:
                return super().__call__(input_ids, *args, **kwargs)
            given = kwargs.get("input_embeds")
            h = self.embed_tokens(input_ids) if given is None else given
            for state in chunked:
                state.maybe_trim_front()
            near = chunked[0].make_mask(h.shape[1])
            whole = next((state for state in states if state not in chunked), None)
            far = module.create_attention_mask(h, whole)
            for layer, state in zip(self.layers, states, strict=True):
                h = layer(h, near if state in chunked else far, cache=state)
            return self.norm(h)

    return Llama4ByRow


@cache
def _with_scales_by_row(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class ScaledByRow(library):
        def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
            offset = getattr(cache, "offset", None)
            if not isinstance(offset, mx.array):
                return super().__call__(x, mask, cache)
            places = offset[:, None] + mx.arange(1, x.shape[1] + 1)
            scales = mx.log(mx.floor(places / self.floor_scale) + 1.0) * self.attn_scale + 1.0
            queries = split_heads(self.q_proj(x), self.n_heads)
            queries = (queries * scales[:, None, :, None]).astype(queries.dtype)
            keys = split_heads(self.k_proj(x), self.n_kv_heads)
            values = split_heads(self.v_proj(x), self.n_kv_heads)
            keys, values = cache.update_and_fetch(keys, values)
            # Looked up here: what reads pages replaces it.
            output = module.scaled_dot_product_attention(
                queries, keys, values, cache, scale=self.scale, mask=mask
            )
            return self.o_proj(join_heads(output))

    return ScaledByRow
