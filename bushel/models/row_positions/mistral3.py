"""Ministral 3 and Mistral 4 with pictures: the scales of their queries, by row."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx

_SCALED = ("Ministral3", "Mistral4Model")


def install(network: Any) -> None:
    """network: of either library; mlx-lm's scales by row, and has a class of the same name."""
    body = network.language_model.model
    of_vision = type(body).__module__.startswith("mlx_vlm.")
    if of_vision and type(body).__name__ in _SCALED:
        body.__class__ = _with_scales_by_row(body.__class__)


@cache
def _with_scales_by_row(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class MistralByRow(library):
        def __call__(self, inputs: Any, cache: Any = None, inputs_embeds: Any = None) -> mx.array:
            # The library waits for the first row's position, and takes it for everybody's.
            if not cache or not isinstance(cache[0].offset, mx.array):
                return super().__call__(inputs, cache, inputs_embeds)
            h = self.embed_tokens(inputs) if inputs_embeds is None else inputs_embeds
            scales = self._scales(cache[0].offset, h.shape[1]).astype(h.dtype)
            masks: dict[bool, Any] = {}
            for layer, state in zip(self.layers, cache, strict=True):
                near = getattr(layer, "use_sliding", False)
                if near not in masks:
                    window = {"window_size": self.sliding_window} if near else {}
                    masks[near] = module.create_attention_mask(h, state, **window)
                h = layer(h, scales, masks[near], cache=state)
            return self.norm(h)

        def _scales(self, rows: mx.array, tokens: int) -> mx.array:
            rope = self.config.rope_parameters
            # Padding has places below 0, where the logarithm is no number.
            places = mx.maximum(rows[:, None] + mx.arange(tokens), 0)
            turns = mx.floor(places / rope["original_max_position_embeddings"])
            scales = 1 + rope["llama_4_scaling_beta"] * mx.log(1 + turns)
            return scales[:, None, :, None]

    return MistralByRow
