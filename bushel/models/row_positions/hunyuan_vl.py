"""Hunyuan VL: rotary positions of tokens after the prompt, by row."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx

from bushel.models.row_positions.heads import join_heads, split_heads


def install(network: Any) -> None:
    language = network.language_model
    language.__class__ = _with_batches(language.__class__)
    for layer in language.model.layers:
        layer.self_attn.__class__ = _with_positions_by_row(layer.self_attn.__class__)


@cache
def _with_batches(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class HunyuanByRow(library):
        def __call__(
            self,
            inputs: Any = None,
            inputs_embeds: Any = None,
            mask: Any = None,
            cache: Any = None,
            **kwargs: Any,
        ) -> Any:
            # The library waits for the first row's position, and takes it for everybody's.
            if not cache or not isinstance(cache[0].offset, mx.array):
                return super().__call__(inputs, inputs_embeds, mask, cache, **kwargs)
            out = self.model(inputs, inputs_embeds, mask, cache)
            tied = self.args.tie_word_embeddings
            head = self.model.embed_tokens.as_linear if tied else self.lm_head
            return module.LanguageModelOutput(logits=head(out))

    return HunyuanByRow


@cache
def _with_positions_by_row(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class RotatedByRow(library):
        def __call__(
            self, x: mx.array, mask: Any = None, cache: Any = None, position_ids: Any = None
        ) -> mx.array:
            offset = getattr(cache, "offset", None)
            if not isinstance(offset, mx.array):
                return super().__call__(x, mask, cache, position_ids)
            queries = split_heads(self.q_proj(x), self.n_heads)
            keys = split_heads(self.k_proj(x), self.n_kv_heads)
            values = split_heads(self.v_proj(x), self.n_kv_heads)
            places = offset[:, None] + mx.arange(x.shape[1])
            angles = places[:, None, :, None] * self.rotary_emb._inv_freq
            angles = mx.concatenate([angles, angles], axis=-1)
            # Rounded as the library's table of them is.
            cos, sin = (each(angles).astype(x.dtype) for each in (mx.cos, mx.sin))
            queries, keys = (self._rotated(each, cos, sin) for each in (queries, keys))
            if self.config.use_qk_norm:
                queries, keys = self.query_layernorm(queries), self.key_layernorm(keys)
            keys, values = cache.update_and_fetch(keys, values)
            # Looked up here: what reads pages replaces it.
            output = module.scaled_dot_product_attention(
                queries, keys, values, cache=cache, scale=self.scale, mask=mask
            )
            return self.o_proj(join_heads(output))

        def _rotated(self, x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
            wide, cos, sin = (each.astype(mx.float32) for each in (x, cos, sin))
            return (wide * cos + module.rotate_half(wide) * sin).astype(x.dtype)

    return RotatedByRow
