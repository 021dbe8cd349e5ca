"""Models of real shapes whose replies are known, with prediction heads that hold at a set rate.

What layers add is small beside a token's embedding, and the scores of a token are the embedding of
the one before it (where both are one matrix, its own): a reply counts up, whatever rounding does,
at the cost of any other model of its shape. A head of such a layer knows it as well, and at places
that follow from the prompt it is made to say something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from bushel.engine.drafts.drafter import DeviceDrafts, Drafts
from bushel.engine.drafts.mtp import MTPDrafter
from bushel.engine.sequence import Sequence as Reply
from bushel.models import Model
from bushel.models.hidden_states import body_of
from bushel.models.mtp import MTPHead
from bushel.models.mtp.mtp_head import HeadBlock

_LITTLE = 1e-3  # of what a layer would add
_OUTPUTS = ("o_proj", "out_proj", "down_proj")


def foretell(model: Model) -> None:
    """Give a model of random weights a reply that is known, and a head that knows it."""
    language: Any = getattr(model.network, "language_model", model.network)
    body = body_of(model.network)
    for layer in body.layers:
        _quieten(layer)
    unembed = body.embed_tokens.as_linear
    if "lm_head" in language:
        language.lm_head.weight = mx.roll(body.embed_tokens.weight, 1, axis=0)
        unembed = language.lm_head
    like = body.layers[-1]
    norm = like.input_layernorm
    width, dtype = norm.weight.shape[0], norm.weight.dtype
    block = HeadBlock(type(like)(language.args, len(body.layers) - 1), width, norm.eps)
    block.layer.update(like.parameters())
    block.project.weight = mx.concatenate([mx.eye(width), mx.zeros((width, width))], axis=1)
    block.set_dtype(dtype)
    model.mtp = MTPHead(
        block, body.embed_tokens, unembed, model.text_positions, recycles_normed=True
    )
    mx.eval(model.network.parameters(), block.parameters())


def _quieten(layer: nn.Module) -> None:
    def less(path: str, module: nn.Module) -> None:
        if path.rpartition(".")[2] in _OUTPUTS:
            module["weight"] = module["weight"] * _LITTLE

    layer.apply_to_modules(less)


class SpoiledHead(MTPDrafter):
    """Some of whose drafts are wrong: at fixed places of each reply, as often as rate leaves."""

    def __init__(self, model: Model, rate: float, deepest: int):
        super().__init__(model, deepest)
        self._rate = rate
        self._wrong: dict[int, list[bool]] = {}

    def propose(self, depths: Sequence[int]) -> Drafts:
        proposed = super().propose(depths)
        if not isinstance(proposed, DeviceDrafts):
            return proposed
        wrong = [self._wrong_at(row.sequence, proposed.tokens.shape[1]) for row in self._rows]
        return proposed._replace(tokens=proposed.tokens ^ mx.array(wrong, mx.uint32))

    def _wrong_at(self, reply: Reply, width: int) -> list[int]:
        """One where one of the next tokens is to be another one."""
        said = len(reply.tokens)
        return [*map(int, self._wrong_of(reply)[said : said + width])]

    def _wrong_of(self, reply: Reply) -> list[bool]:
        seed = hash(tuple(reply.request.prompt.ids)) % 2**32
        if seed not in self._wrong:
            drawn = np.random.default_rng(seed).random(reply.limit + self.deepest) > self._rate
            self._wrong[seed] = drawn.tolist()
        return self._wrong[seed]
