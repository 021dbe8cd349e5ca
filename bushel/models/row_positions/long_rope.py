"""LongRoPE, of Phi-3 and others of mlx-vlm: short or long factors by each row's own length.

The library takes the long ones for all rows as soon as one is beyond the border.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx

from bushel.models.known_families import has_two_factors


def install(network: Any) -> None:
    for part in network.modules():
        if has_two_factors(part):
            part.__class__ = _with_factors_by_row(part.__class__)


@cache
def _with_factors_by_row(library: Any) -> Any:
    class LongRoPEByRow(library):
        def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
            if not isinstance(offset, mx.array) or offset.ndim == 0:
                return super().__call__(x, offset)
            long = (offset + x.shape[-2] > self.original_max_position_embeddings)[:, None]
            return mx.where(
                long[..., None, None],
                self._rotated(x, offset, self._long_freqs, self._long_scale),
                self._rotated(x, offset, self._short_freqs, self._short_scale),
            )

        def _rotated(
            self, x: mx.array, offset: mx.array, freqs: mx.array, scale: mx.array
        ) -> mx.array:
            scaled = scale.astype(x.dtype) * x[..., : self.dim]
            if self.dim < x.shape[-1]:
                scaled = mx.concatenate([scaled, x[..., self.dim :]], axis=-1)
            return mx.fast.rope(
                scaled,
                self.dim,
                traditional=False,
                base=None,
                scale=1.0,
                offset=offset,
                freqs=freqs,
            )

    return LongRoPEByRow
