"""AFM: its last layers, which read an earlier layer's keys, at positions of their rows."""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx


def install(network: Any) -> None:
    body = network.model
    body.__class__ = _with_positions_by_row(body.__class__)
    for layer in body.kv_reuse_layers:
        layer.self_attn.rope = RowRope(layer.self_attn.rope)


class RowRope:
    """A layer's rotary positions: as the library says, or where the rows of a batch are."""

    def __init__(self, library: Any):
        self._library = library
        self.rows: mx.array | None = None

    def __call__(self, x: mx.array, offset: int) -> mx.array:
        return self._library(x, offset=offset if self.rows is None else self.rows)


@cache
def _with_positions_by_row(library: Any) -> Any:
    class AFMByRow(library):
        def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
            rows = cache[0].offset if cache else None
            ropes = [layer.self_attn.rope for layer in self.kv_reuse_layers]
            for rope in ropes:
                rope.rows = rows if isinstance(rows, mx.array) else None
            try:
                return super().__call__(inputs, cache)
            finally:
                for rope in ropes:
                    rope.rows = None

    return AFMByRow
