"""What cross-attention layers look at: pictures beside the text, the same at every token.

mlx-vlm's model wants them anew in every call, so a row carries them among its layer states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    position = 0  # of its row's next token, where rows share a batch

    @property
    def state(self) -> list[mx.array]:
        return [array for array in self.arrays if array is not None]

    def empty(self) -> bool:
        return not self.arrays

    def of(self, start: int, end: int) -> Arrays:
        """States and masks for tokens [start, end) of its row; None where there are none."""
        if not self.arrays:
            return (None,) * 3
        states, *masks = self.arrays
        cut = (
            mask[:, :, start:end] if mask is not None and start < mask.shape[2] else None
            for mask in masks
        )
        return (states, *cut)

    def of_next(self, tokens: int) -> Arrays:
        return self.of(self.position, self.position + tokens)


def arrays_among(embedded: Mapping[str, Any]) -> Arrays:
    """Of what embedding a prompt found, that which is for cross-attention."""
    return tuple(embedded.get(name) for name in (_STATES, *_MASKS)) if _STATES in embedded else ()


def _memories(state: Iterable[Any]) -> Iterator[list[CrossMemory]]:
    """Of each layer of cross-attention, those of its rows."""
    for layer in state:
        rows = getattr(layer, "rows", [layer])
        if isinstance(rows[0], CrossMemory):
            yield rows


def hold(state: Iterable[Any], arrays: Arrays) -> None:
    for rows in _memories(state):
        for memory in rows:
            memory.arrays = arrays


def place(state: Iterable[Any], positions: Sequence[int]) -> None:
    """Where the rows of a batch are: what they look at is told row by row."""
    for rows in _memories(state):
        for memory, position in zip(rows, positions, strict=True):
            memory.position = position


def as_kwargs(state: Iterable[Any], start: int, end: int) -> dict[str, mx.array]:
    """The arguments for tokens [start, end) of the row whose state this is; of a batch none."""
    memory = next((layer for layer in state if isinstance(layer, CrossMemory)), CrossMemory())
    named = zip((_STATES, *_MASKS), memory.of(start, end), strict=True)
    return {name: array for name, array in named if array is not None}
