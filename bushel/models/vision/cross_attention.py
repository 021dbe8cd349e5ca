"""What cross-attention layers look at: pictures beside the text, the same at every token.

mlx-vlm's model wants them anew in every call, so a row carries them among its layer states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import mlx.core as mx

_STATES = "cross_attention_states"
# [1, 1, prompt tokens, …]; a token after the prompt has none, and sees every picture whole.
_MASKS = ("cross_attention_mask", "full_text_row_masked_out_mask")

Arrays = tuple[mx.array | None, ...]  # states, then masks; empty for a prompt without pictures


class CrossMemory:
    """The state of one cross-attention layer. No token changes it."""

    offset = 0  # tokens kept, as the library asks: none
    arrays: Arrays = ()

    @property
    def state(self) -> list[mx.array]:
        return [array for array in self.arrays if array is not None]

    def empty(self) -> bool:
        return not self.arrays


def arrays_among(embedded: Mapping[str, Any]) -> Arrays:
    """Of what embedding a prompt found, that which is for cross-attention."""
    return tuple(embedded.get(name) for name in (_STATES, *_MASKS)) if _STATES in embedded else ()


def hold(state: Iterable[Any], arrays: Arrays) -> None:
    for layer in state:
        if isinstance(layer, CrossMemory):
            layer.arrays = arrays


def as_kwargs(state: Iterable[Any], start: int, end: int) -> dict[str, mx.array]:
    """The arguments for tokens [start, end) of the row whose state this is."""
    arrays = next((layer.arrays for layer in state if isinstance(layer, CrossMemory)), ())
    kwargs: dict[str, mx.array] = {}
    for name, array in zip((_STATES, *_MASKS), arrays, strict=False):
        if array is not None and name == _STATES:
            kwargs[name] = array
        elif array is not None and start < array.shape[2]:
            kwargs[name] = array[:, :, start:end]
    return kwargs
