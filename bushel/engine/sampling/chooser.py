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

    Token t is allowed where bit t % 32 of word t // 32 is set. Along a draft of width W there is a
    slot for every place: that of row i and column j is entry i * W + j.
    """

    slots: mx.array  # [B] or [B * W] int32
    words: mx.array  # [G + 1, vocabulary / 32] uint32


class SamplingStep(NamedTuple):
    """One step's choice, apart from logits and settings; row i's part of it is entry i.

    Along a draft of width W a token is chosen after each of a row's W inputs. Bias and masks are
    then by place, i * W + j for row i and column j; indices and positions are those of column 0.
    """

    inputs: mx.array  # [B, W] the newest tokens, part of the reply where the index is not 0
    indices: Sequence[int]  # of the new token in its reply
    positions: Sequence[int]  # of the new token in its sequence
    bias: mx.array | None = None  # [B * W, V]
    masks: Masks | None = None


class Chooser(Protocol):
    """Owned by a `Sampler`; its rows are the sampler's rows. Each row's token is its own affair."""

    def join(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None: ...

    def leave(self, keep: Sequence[int]) -> None: ...

    def tokens(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        """[B, 1] for logits [B, 1, V]: penalties over what was said, bias, masks, then drawn."""
        ...

    def tokens_along(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        """[B, W] for logits [B, W, V]: at every place what `tokens` would give, one by one.

        Its rows stay as they are until `keep` says how many of the inputs they have kept.
        """
        ...

    def keep(self, kept: Sequence[int]) -> None:
        """Go on as after kept[i] calls of `tokens` with the first of row i's inputs.

        Once, and with the rows of `tokens_along`, which it follows.
        """
        ...

    def check_integrity(self) -> None: ...
