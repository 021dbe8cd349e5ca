"""What choosing the tokens of a batch asks for, and who does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import mlx.core as mx

from bushel.core import Decoding


@dataclass(frozen=True)
class Masks:
    """Of some rows of a batch: words[slots[row]] is that row's; the last one allows everything.

    Token t is allowed where bit t % 32 of word t // 32 is set.
    """

    slots: mx.array  # [B] int32
    words: mx.array  # [G + 1, W] uint32


class SamplingStep(NamedTuple):
    """One step's choice, apart from logits and settings; row i's part of it is entry i."""

    inputs: mx.array  # [B, 1] the newest tokens, part of the reply where the index is not 0
    indices: Sequence[int]  # of the new token in its reply
    positions: Sequence[int]  # of the new token in its sequence
    bias: mx.array | None = None  # [B, V]
    masks: Masks | None = None


class Chooser(Protocol):
    """Owned by a `Sampler`; its rows are the sampler's rows. Each row's token is its own affair."""

    def join(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None: ...

    def leave(self, keep: Sequence[int]) -> None: ...

    def tokens(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        """[B, 1] for logits [B, 1, V]: penalties over what was said, bias, masks, then drawn."""
        ...

    def check_integrity(self) -> None: ...
