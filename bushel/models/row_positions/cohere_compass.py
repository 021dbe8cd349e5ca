"""Cohere Compass: attention over padded rows by their mask, whatever their order in a window."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx

from bushel.models.row_positions.heads import join_heads, split_heads


def install(network: Any) -> None:
    for layer in network.language_model.model.layers:
        layer.self_attn.__class__ = _with_masks(layer.self_attn.__class__)


@cache
def _with_masks(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class CompassByRow(library):
        def __call__(
            self,
            hidden_states: mx.array,
            mask: Any = None,
            cache: Any = None,
            position_ids: Any = None,
            position_embeddings: Any = None,
        ) -> mx.array:
            if not isinstance(getattr(cache, "offset", None), mx.array):
                return super().__call__(
                    hidden_states, mask, cache, position_ids, position_embeddings
                )
            # The library cuts a row out by its padding, as if no window had ever gone round.
            queries = split_heads(self.q_proj(hidden_states), self.n_heads)
            keys = split_heads(self.k_proj(hidden_states), self.n_kv_heads)
            values = split_heads(self.v_proj(hidden_states), self.n_kv_heads)
            if self.rotary_emb.enabled:
                queries, keys = self._apply_precomputed(queries, keys, position_embeddings)
            keys, values = cache.update_and_fetch(keys, values)
            # Looked up here: what reads pages replaces it.
            output = module.scaled_dot_product_attention(
                queries, keys, values, cache=cache, scale=self.scale, mask=mask
            )
            return self.o_proj(join_heads(output))

    return CompassByRow
