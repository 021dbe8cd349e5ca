"""A prediction head: from a hidden state and the token after it to the token after that.

    body     x0   x1   x2   x3        tokens
             h0   h1   h2   h3        hidden states behind the last norm
    head     h0   h1   h2             with x1, x2, x3: g0, g1, g2, of which logits of x2, x3, x4
                       g2             with the draft of x4: the draft of x5, and so on

Its layer is one of the family's own, with keys and values of its own. A token of it stands at the
position of the hidden state that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from bushel.models.mtp.head_cache import HeadKVCache

Positions = Callable[[Sequence[int], int], dict[str, mx.array]]


class HeadBlock(nn.Module):
    """What a head has of its own. layer: of the family, with attention."""

    def __init__(self, layer: nn.Module, width: int, eps: float):
        super().__init__()
        self.embedding_norm = nn.RMSNorm(width, eps=eps)
        self.hidden_norm = nn.RMSNorm(width, eps=eps)
        self.project = nn.Linear(2 * width, width, bias=False)
        self.layer = layer
        self.norm = nn.RMSNorm(width, eps=eps)


class MTPHead:
    """Owned by a model, and shared by those who draft with it: it keeps nothing of a row."""

    def __init__(
        self,
        block: HeadBlock,
        embed: Callable[[mx.array], mx.array],
        unembed: Callable[[mx.array], mx.array],
        positions: Positions,
        *,
        recycles_normed: bool,
    ):
        """embed, unembed: the body's, which it shares. positions: what a layer is told of them.

        recycles_normed: it drafts on from its own hidden state behind its norm.
        """
        self.block = block
        self._embed, self._unembed, self._positions = embed, unembed, positions
        self._recycles_normed = recycles_normed
        attention: Any = block.layer
        self._masks_are_arrays = hasattr(attention.self_attn, "kv_lora_rank")

    def __call__(
        self,
        hidden: mx.array,
        following: mx.array,
        positions: Sequence[int],
        starts: Sequence[int],
        cache: HeadKVCache,
        told: dict[str, mx.array] | None = None,
    ) -> mx.array:
        """Hidden states [B, T, D] and the tokens after them [B, T], row i from positions[i] on;
        kept from slot starts[i] on. Gives hidden states that `logits` reads, and the head itself.

        told: of positions that are not those of text.
        """
        block, width = self.block, hidden.shape[1]
        cache.begin(starts, positions, width)
        embedded = block.embedding_norm(self._embed(following).astype(hidden.dtype))
        both = mx.concatenate([embedded, block.hidden_norm(hidden)], axis=-1)
        layer: Any = block.layer
        mask = cache.mask(as_array=self._masks_are_arrays)
        told = self._positions(positions, width) if told is None else told
        output = layer(block.project(both), mask=mask, cache=cache, **told)
        return block.norm(output) if self._recycles_normed else output

    def logits(self, hidden: mx.array) -> mx.array:
        """Of what `__call__` gave: [..., V]."""
        return self._unembed(hidden if self._recycles_normed else self.block.norm(hidden))

    @property
    def parameters(self) -> Any:
        """Its own weights, as a tree; the body's are none of them."""
        return self.block.parameters()

    @property
    def nbytes(self) -> int:
        leaves: Any = tree_flatten(self.parameters)
        return sum(leaf.nbytes for _, leaf in leaves)
