"""Rotary positions, for the families that give an image rows and columns (M-RoPE).

Left to themselves these models keep a prompt's positions on the model object, where the next
prompt finds them (B5). Bushel keeps them with the prompt instead, as [3, 1, L], and says them
in every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

_AXES_FIRST, _AXES_LAST, _NO_AXES = (3, 1, 2), (1, 2, 3), (1, 2)
_ATTRIBUTES = ("_position_ids", "_rope_deltas")


class MRopePositions:
    def __init__(self, language: Any):
        self._language = language
        self.explicit = hasattr(language, "get_rope_index")
        # hunyuan_vl takes positions with the first tokens of a prompt alone, and counts from there.
        self._at_start = hasattr(language, "get_xdrope_input_positions")
        self._shape = self._shape_of_two_tokens() if self.explicit else ()

    def capture(
        self, ids: mx.array, embedded: Mapping[str, Any], tensors: Mapping[str, Any], media: bool
    ) -> tuple[mx.array | None, int]:
        """Positions [3, 1, L] and shift of the prompt just embedded; the model forgets both.

        Of `tensors` only the grids are read; and, of hunyuan_vl, the positions that its processor
        tells, which are [1, 4, L].
        """
        positions, delta = (
            embedded.get(name, getattr(self._language, attribute, None))
            for name, attribute in zip(("position_ids", "rope_deltas"), _ATTRIBUTES, strict=True)
        )
        self.forget()
        if not self.explicit:
            said = tensors.get("position_ids") if positions is None else positions
            return (said if self._at_start else None), 0
        if not media:
            return self._counted([0], ids.shape[1]), 0
        if positions is None:
            grids = [tensors.get(f"{kind}_grid_thw") for kind in ("image", "video")]
            positions, delta = self._index(ids, *grids)
        if positions.ndim == 2:
            positions = mx.broadcast_to(positions[None], (3, *positions.shape))
        elif self._shape == _AXES_LAST:
            positions = positions.transpose(2, 0, 1)
        return positions[:, :, : ids.shape[1]], int(np.asarray(delta).reshape(-1)[0])

    def whole(self, positions: mx.array | None) -> int:
        """How many of the first tokens have to run together to be at these positions."""
        if positions is None or not self._at_start:
            return 0
        moved = (np.asarray(positions) != np.arange(positions.shape[2])).any(axis=(0, 1))
        return int(np.flatnonzero(moved).max(initial=-1)) + 1

    def forget(self) -> None:
        for name in _ATTRIBUTES:
            if hasattr(self._language, name):
                setattr(self._language, name, None)

    def as_kwargs(self, positions: mx.array) -> dict[str, mx.array]:
        """Positions [3, B, n] as the argument this family takes."""
        if self._shape == _AXES_LAST:
            positions = positions.transpose(1, 2, 0)
        elif self._shape == _NO_AXES:
            positions = positions[0]
        return {"position_ids": positions}

    def of_text(self, firsts: Sequence[int], count: int) -> dict[str, mx.array]:
        """The argument for `count` tokens of text in each row."""
        return self.as_kwargs(self._counted(firsts, count)) if self.explicit else {}

    def _counted(self, firsts: Sequence[int], count: int) -> mx.array:
        rows = mx.array(list(firsts))[:, None] + mx.arange(count)[None]
        return mx.broadcast_to(rows[None], (3, *rows.shape))

    def _shape_of_two_tokens(self) -> tuple[int, ...]:
        """As the family's index gives positions where there is an image; no two axes are alike."""
        try:
            return self._index(mx.array([[0, 0]]), mx.array([[1, 2, 2]]))[0].shape
        except (AttributeError, ValueError):  # minicpm borrows an index that is not for its images
            return _AXES_FIRST

    def _index(self, ids: mx.array, *grids: Any) -> tuple[mx.array, Any]:
        index: tuple[mx.array, Any] = self._language.get_rope_index(ids, *grids)
        return index
