"""GPT BigCode (StarCoder): its learned positions, by row."""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx


def install(network: Any) -> None:
    network.transformer.__class__ = _with_positions_by_row(network.transformer.__class__)


@cache
def _with_positions_by_row(library: Any) -> Any:
    class GPTBigCodeByRow(library):
        def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
            if cache is None or not isinstance(cache[0].offset, mx.array):
                return super().__call__(inputs, cache)
            tokens = inputs.shape[1]
            places = cache[0].offset[:, None] + mx.arange(tokens)
            h = self.wte(inputs) + self.wpe(places)
            mask = cache[0].make_mask(tokens)
            for layer, state in zip(self.h, cache, strict=True):
                h = layer(h, mask, cache=state)
            return self.ln_f(h)

    return GPTBigCodeByRow
