"""Dynamic NTK scaling (InternLM): the rotary base of rows at their own positions.

It grows with rows that are longer than the context, and such rows are not served: up to there it
is one number for all of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx


def install(network: Any) -> None:
    """network: of mlx-lm; mlx-vlm has such a part in text models alone, which mlx-lm runs."""
    for part in network.modules():
        if type(part).__name__ == "DynamicNTKScalingRoPE":
            part.__class__ = _with_positions_by_row(part.__class__)


@cache
def _with_positions_by_row(library: Any) -> Any:
    class DynamicNTKByRow(library):
        def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
            if not isinstance(offset, mx.array):
                return super().__call__(x, offset=offset)
            return mx.fast.rope(
                x,
                self.dims,
                traditional=self.traditional,
                base=self.base,
                scale=1.0,
                offset=offset,
            )

    return DynamicNTKByRow
