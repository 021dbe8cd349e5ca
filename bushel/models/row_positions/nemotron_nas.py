"""Nemotron-NAS: the mask of its first attention, where a linear map stands before it."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx


def install(network: Any) -> None:
    network.model.__class__ = _with_mask_of_attention(network.model.__class__)


@cache
def _with_mask_of_attention(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class NemotronNASByRow(library):
        def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
            mixers = [layer.self_attn for layer in self.layers if layer.self_attn is not None]
            # The library asks the first state, which a linear map never writes: it pads no row.
            writes = [at for at, mixer in enumerate(mixers) if not hasattr(mixer, "linear")]
            if cache is None or not writes or not isinstance(cache[writes[0]].offset, mx.array):
                return super().__call__(inputs, cache)
            h = self.embed_tokens(inputs)
            mask = module.create_attention_mask(h, cache[writes[0]])
            states = iter(cache)
            for layer in self.layers:
                h = layer(h, mask, cache=None if layer.self_attn is None else next(states))
            return self.norm(h)

    return NemotronNASByRow
