"""The sampling settings and state of a decode batch's rows, applied together.

What chooses the tokens is a `Chooser`: `vectorised` with MLX's own operations on any device, or
`cuda` in one launch there, where every operation costs the host several microseconds, and
every array that it sends there some fifty; for rows that ask for more than its kernel does, both
(`split`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, TokenLogprob
from bushel.engine.sampling import draw
from bushel.engine.sampling.chooser import Chooser, Masks, SamplingStep
from bushel.engine.sampling.cuda import KernelChooser
from bushel.engine.sampling.split import SplitChooser
from bushel.engine.sampling.vectorised import VectorisedChooser
from bushel.models.device import ON_CUDA

Logprobs = tuple[mx.array, mx.array, mx.array]  # chosen, values of the best, ids of the best


@dataclass
class Sampled:
    """One step's result, possibly not computed yet."""

    tokens: mx.array  # [B, 1]
    logprobs: list[tuple[list[int], Logprobs]] = field(default_factory=list)  # of these rows

    def arrays(self) -> list[mx.array]:
        return [self.tokens, *(array for _, arrays in self.logprobs for array in arrays)]

    def read(self, rows: Sequence[Decoding]) -> tuple[list[int], list[TokenLogprob | None]]:
        """To host values; waits for the device."""
        tokens = listed(self.tokens)
        logprobs: list[TokenLogprob | None] = [None] * len(tokens)
        for asked, arrays in self.logprobs:
            host: list[Any] = [array.tolist() for array in arrays]
            chosen, values, ids = host
            for at, row in enumerate(asked):
                count = rows[row].logprobs or 0
                best = tuple(zip(ids[at][:count], values[at][:count], strict=True))
                logprobs[row] = TokenLogprob(tokens[row], chosen[at], best)
        return tokens, logprobs


def listed(tokens: mx.array) -> list[int]:
    """Those of [B, 1], on the host; waits for the device."""
    rows: Any = tokens.tolist()
    return [token for (token,) in rows]


def logprobs_of(logits: mx.array, tokens: mx.array, count: int) -> Logprobs:
    """Raw float32 log-softmax of `tokens` [R], and the `count` best of each row of logits."""
    logits = logits.astype(mx.float32)
    norm = mx.logsumexp(logits, axis=-1, keepdims=True)
    chosen = (mx.take_along_axis(logits, tokens[:, None], axis=-1) - norm)[:, 0]
    values, ids = draw.top(logits, max(count, 1))
    return chosen, values - norm, ids


def ranks_of(logits: mx.array, tokens: mx.array) -> mx.array:
    """The ranks of `tokens` [R] in their rows of logits; the likeliest has 1."""
    own = mx.take_along_axis(logits, tokens[:, None], axis=-1)
    return (logits > own).sum(axis=-1) + 1


class Sampler:
    """Owned by one decode batch; its rows are that batch's rows, in the same order."""

    def __init__(self, vocab: int):
        self.vocab = vocab
        self.rows: list[Decoding] = []
        own = VectorisedChooser(vocab)
        self.chooser: Chooser = SplitChooser(KernelChooser(vocab), own) if ON_CUDA else own
        self._early: tuple[bool, ...] | None = None  # who is below min_tokens, as of _bias
        self._bias: mx.array | None = None  # [B, V]
        self._arrange()

    def join(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None:
        self.chooser.join(row, prompt, reply)
        self.rows.append(row)
        self._arrange()

    def leave(self, keep: Sequence[int]) -> None:
        self.chooser.leave(keep)
        self.rows = [self.rows[row] for row in keep]
        self._arrange()

    def sample(
        self,
        logits: mx.array,
        inputs: mx.array,
        indices: Sequence[int],
        positions: Sequence[int],
        masks: Masks | None = None,
    ) -> Sampled:
        """Tokens [B, 1] for logits [B, 1, V], of those that `masks` allow.

        As a model takes and gives them: what it costs to change shapes, which is little, can be a
        hundredth of a step. `inputs` [B, 1] are the tokens that led to them; row i's new token is
        number indices[i] of its reply and stands at positions[i] of its sequence.
        """
        bias = self._bias_at(indices) if self._biased else None
        if self._plain and bias is None and masks is None:
            tokens = mx.argmax(logits, axis=-1)
        else:
            tokens = self.chooser.tokens(
                logits, SamplingStep(inputs, indices, positions, bias, masks)
            )
        return Sampled(tokens, [self._logprobs(asked, logits, tokens) for asked in self._asked])

    def _logprobs(
        self, asked: list[int], logits: mx.array, tokens: mx.array
    ) -> tuple[list[int], Logprobs]:
        take = mx.array(asked)
        count = max(self.rows[row].logprobs or 0 for row in asked)
        return asked, logprobs_of(logits[take, 0], tokens[take, 0], count)

    def _bias_at(self, indices: Sequence[int]) -> mx.array | None:
        """Logit bias, what may not be chosen at all, and end tokens held down while a reply is
        shorter than its min_tokens.
        """
        pairs = zip(self.rows, indices, strict=True)
        early = tuple(index < row.min_tokens for row, index in pairs)
        if early != self._early:
            self._early = early
            self._bias = self._make_bias(early)
        return self._bias

    def _make_bias(self, early: Sequence[bool]) -> mx.array | None:
        if not any(early) and not any(map(_always_biased, self.rows)):
            return None
        bias = np.zeros((len(self.rows), self.vocab), np.float32)
        for at, (row, held) in enumerate(zip(self.rows, early, strict=True)):
            for token, value in row.logit_bias:
                bias[at, token] = value
            if row.allowed_ids:
                others = np.ones(self.vocab, np.bool_)
                others[list(row.allowed_ids)] = False
                bias[at, others] = draw.RULED_OUT
            bias[at, _banned(row)] = draw.RULED_OUT
            if held:
                bias[at, list(row.banned_early)] = -np.inf
        return mx.array(bias)

    def _arrange(self) -> None:
        rows = self.rows
        self._early = self._bias = None
        self._plain = all(draw.route(row) == "greedy" and not row.reworked for row in rows)
        self._biased = any(_always_biased(row) or row.min_tokens for row in rows)
        asked = [(at, row.logprobs) for at, row in enumerate(rows) if row.logprobs is not None]
        few = [at for at, count in asked if count <= draw.CANDIDATES]
        many = [at for at, count in asked if count > draw.CANDIDATES]
        # Apart, because they break ties differently: a neighbour must not change the choice.
        self._asked = [group for group in (few, many) if group]

    def check_integrity(self) -> None:
        self.chooser.check_integrity()


def _always_biased(row: Decoding) -> bool:
    return bool(row.logit_bias or row.allowed_ids or row.token_rules.banned)


def _banned(row: Decoding) -> list[int]:
    """Tokens that are bad words by themselves; `history` knows of longer ones."""
    return [word[0] for word in row.token_rules.banned if len(word) == 1]
