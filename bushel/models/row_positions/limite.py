"""Limite: positions and masks of their rows, where its code counts from one offset for all."""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx


def install(network: Any) -> None:
    body = network.language_model.model
    body.__class__ = _with_positions_by_row(body.__class__)
    for layer in body.layers:
        layer.self_attn.__class__ = _with_masks_by_row(layer.self_attn.__class__)


@cache
def _with_positions_by_row(library: Any) -> Any:
    class LimiteByRow(library):
        def __call__(self, inputs: mx.array, cache: Any = None, positions: Any = None) -> mx.array:
            if cache and isinstance(rows := cache[0].offset, mx.array):
                positions = rows[:, None] + mx.arange(inputs.shape[1])
            return super().__call__(inputs, cache, positions)

    return LimiteByRow


class FromTheLeft:
    """A batch's state, with the end of its longest row as the offset of all."""

    def __init__(self, batch: Any):
        self._batch = batch
        self.offset: int = batch._idx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)


@cache
def _with_masks_by_row(library: Any) -> Any:
    class AttentionByRow(library):
        window: Any

        def __call__(
            self, attn_in: mx.array, ve_rows: mx.array, positions: mx.array, cache: Any = None
        ) -> mx.array:
            if cache is None or not isinstance(cache.offset, mx.array):
                return super().__call__(attn_in, ve_rows, positions, cache)
            # How far back a token looks: no farther than to where its row begins. Padding looks
            # at itself, because a softmax over nothing is no number.
            window = self.window
            reach = mx.maximum(positions, 0)
            reach = reach if window is None else mx.minimum(reach, window)
            self.window = reach[:, None, :, None]
            try:
                return super().__call__(attn_in, ve_rows, positions, FromTheLeft(cache))
            finally:
                self.window = window

    return AttentionByRow
