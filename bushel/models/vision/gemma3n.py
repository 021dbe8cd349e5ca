"""Gemma 3n as mlx-lm has it: tokens of a prompt as large as a reply's, queries at their own places.

Gemma multiplies the embeddings of tokens by the root of their width. mlx-vlm does that where the
text model looks them up, as it does for a reply, and leaves it out where it is given a prompt's.

Its last layers use the keys of earlier ones, whose cache has moved on by then: mlx-vlm rotates
their queries as if each came as many places later as there are tokens in the call.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import mlx.core as mx


def install(network: Any) -> None:
    network.__class__ = _scaled(network.__class__)
    for layer in network.layers:
        attention = layer.self_attn
        if attention.is_kv_shared_layer:
            attention.__class__ = _placed(attention.__class__)


@cache
def _scaled(library: Any) -> Any:
    class ScaledEmbeddings(library):
        __module__ = library.__module__  # by which families are known

        def get_input_embeddings(
            self, input_ids: Any = None, pixel_values: Any = None, **kwargs: Any
        ) -> Any:
            found = super().get_input_embeddings(input_ids, pixel_values, **kwargs)
            rows = found.inputs_embeds
            large = rows * self.language_model.model.hidden_size**0.5
            if pixel_values is not None:  # what pictures are made of has its size
                own = input_ids < self.embed_vision.vocab_offset
                own = own & (input_ids != self.config.image_token_id)
                large = mx.where(own[..., None], large, rows)
            return replace(found, inputs_embeds=large)

    return ScaledEmbeddings


@cache
def _placed(library: Any) -> Any:
    class AttentionToEarlierKeys(library):
        def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> Any:
            before = None if cache is None else _Before(cache, x.shape[1])
            return super().__call__(x, mask, before)

    return AttentionToEarlierKeys


class _Before:
    """A layer's cache with all that it holds now, and the offset of the call's first token."""

    def __init__(self, cache: Any, count: int):
        self._cache = cache
        self.offset = cache.offset - count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)
