"""DeepSeek V4.1 of mlx-lm: its compressed attention, row by row; experts run for all rows at once.

mlx-vlm's does so by itself.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx


def install(network: Any) -> None:
    if hasattr(network, "language_model"):
        return
    network.model.__class__ = _with_batches(network.model.__class__)
    for layer in network.layers:
        layer.self_attn.__class__ = _with_attention_by_row(layer.self_attn.__class__)


@cache
def _with_batches(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class DeepseekV41ByRow(library):
        def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
            rows = getattr(cache[0], "rows", None) if cache else None
            if rows is None:
                return super().__call__(inputs, cache)
            h, args = self.embed_tokens(inputs), self.args
            batch, tokens, _ = h.shape
            seen = [
                module._window_indices(
                    previous=row.window.shape[1], length=tokens, window=args.sliding_window
                )
                for row in rows
            ]
            wide = batch, tokens, args.hc_mult
            streams = mx.broadcast_to(h[:, :, None, :], (*wide, args.hidden_size))
            mix = mx.broadcast_to(mx.arange(args.hc_mult) == 0, wide).astype(mx.float32)
            shared: list[dict[str, Any]] = [{} for _ in rows]
            for layer, states in zip(self.pipeline_layers, cache, strict=True):
                streams, mix = layer(
                    streams,
                    mix,
                    start_pos=[row.offset for row in states.rows],
                    window_idx=seen,
                    cache=states,
                    shared=shared,
                )
            return self.norm(module._collapse(streams, mix))

    return DeepseekV41ByRow


@cache
def _with_attention_by_row(library: Any) -> Any:
    class CompressedByRow(library):
        def __call__(self, x: mx.array, *, cache: Any, **kwargs: Any) -> mx.array:
            rows = getattr(cache, "rows", None)
            if rows is None:
                return super().__call__(x, cache=cache, **kwargs)
            alone, names = super().__call__, ("start_pos", "window_idx", "shared")
            outputs = []
            for at, row in enumerate(rows):
                start, seen, shared = (kwargs[name][at] for name in names)
                outputs.append(
                    alone(
                        x[at : at + 1],
                        start_pos=start,
                        window_idx=seen[None],
                        cache=row,
                        shared=shared,
                    )
                )
            return mx.concatenate(outputs)

    return CompressedByRow
