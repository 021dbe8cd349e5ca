"""The sampling settings and state of a decode batch's rows, applied together.

What chooses the tokens is a `Chooser`: `vectorised` with MLX's own operations on any device, or
`cuda` in one launch there, where every operation costs the host several microseconds, and
every array that it sends there some fifty; for rows that ask for more than its kernel does, both
(`split`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, IntegrityError, TokenLogprob
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
            read = _read(arrays)
            for at, row in enumerate(asked):
                logprobs[row] = read(at, tokens[row], rows[row].logprobs or 0)
        return tokens, logprobs


@dataclass
class SampledDraft:
    """What was chosen at every place of a draft, possibly not computed yet."""

    tokens: mx.array  # [B, W]
    counts: Sequence[int]  # of row i's places that are real
    logprobs: list[tuple[list[int], Logprobs]]  # of these rows, at all W places of each

    def arrays(self) -> list[mx.array]:
        return [self.tokens, *(array for _, arrays in self.logprobs for array in arrays)]

    def read(self, rows: Sequence[Decoding]) -> tuple[list[list[int]], list[list[TokenLogprob]]]:
        """Each row's real places as host values; waits for the device.

        Log-probabilities are empty for a row that did not ask for them.
        """
        every: Any = self.tokens.tolist()
        width = self.tokens.shape[1]
        tokens = [mine[:count] for mine, count in zip(every, self.counts, strict=True)]
        logprobs: list[list[TokenLogprob]] = [[] for _ in tokens]
        for asked, arrays in self.logprobs:
            read = _read(arrays)
            for at, row in enumerate(asked):
                wanted = rows[row].logprobs or 0
                logprobs[row] = [
                    read(at * width + column, token, wanted)
                    for column, token in enumerate(tokens[row])
                ]
        return tokens, logprobs


def _read(arrays: Logprobs) -> Callable[[int, int, int], TokenLogprob]:
    """What tells entry `at`, of a token, with so many of the best beside it."""
    host: list[Any] = [array.tolist() for array in arrays]
    chosen, values, ids = host

    def at_place(at: int, token: int, count: int) -> TokenLogprob:
        best = tuple(zip(ids[at][:count], values[at][:count], strict=True))
        return TokenLogprob(token, chosen[at], best)

    return at_place


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
        self._drafting = False  # whether `keep` may follow
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
        self._drafting = False
        bias = self._bias_at(indices) if self._biased else None
        if self._plain and bias is None and masks is None:
            tokens = mx.argmax(logits, axis=-1)
        else:
            tokens = self.chooser.tokens(
                logits, SamplingStep(inputs, indices, positions, bias, masks)
            )
        return Sampled(tokens, [self._logprobs(asked, logits, tokens) for asked in self._asked])

    def sample_along(
        self,
        logits: mx.array,
        inputs: mx.array,
        counts: Sequence[int],
        indices: Sequence[int],
        positions: Sequence[int],
        masks: Masks | None = None,
    ) -> SampledDraft:
        """Choose a token after each of a row's `inputs` [B, W], from logits [B, W, V].

            inputs   newest  d1   d2   d3   filler     counts[i]: the newest token and its drafts
            tokens     t0    t1   t2   t3     -        t1 is right if d1 is t0, t2 if d2 is t1, ..

        The token at column j is the one that `sample` would choose there if the row had come so
        far one by one: at indices[i] + j of its reply and positions[i] + j of its sequence, after
        drafts up to d_j. Rows stay as they are until `keep`; without it, nothing was said.
        """
        width = logits.shape[1]
        bias = self._bias_along(indices, width) if self._biased else None
        if self._plain and bias is None and masks is None:
            tokens = mx.argmax(logits, axis=-1)
        else:
            turn = SamplingStep(inputs, indices, positions, bias, masks)
            tokens = self.chooser.tokens_along(logits, turn)
        self._drafting = True
        logprobs = [self._logprobs(asked, logits, tokens) for asked in self._asked]
        return SampledDraft(tokens, counts, logprobs)

    def keep(self, kept: Sequence[int]) -> None:
        """Of the inputs that tokens were last chosen along, row i has kept the first kept[i]."""
        if not self._drafting:
            raise IntegrityError("there is no draft to keep")
        self.chooser.keep(kept)
        self._drafting = False

    def _logprobs(
        self, asked: list[int], logits: mx.array, tokens: mx.array
    ) -> tuple[list[int], Logprobs]:
        take = mx.array(asked)
        count = max(self.rows[row].logprobs or 0 for row in asked)
        mine = logits[take].reshape(-1, logits.shape[2])
        return asked, logprobs_of(mine, tokens[take].reshape(-1), count)

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

    def _bias_along(self, indices: Sequence[int], width: int) -> mx.array | None:
        """[B * W, V]; made anew only where a row comes to its min_tokens."""
        columns = [self._bias_at([index + at for index in indices]) for at in range(width)]
        first = columns[0]
        if all(column is first for column in columns):
            return None if first is None else mx.repeat(first, width, axis=0)
        none = mx.zeros((len(self.rows), self.vocab))
        stacked = mx.stack([none if column is None else column for column in columns], axis=1)
        return stacked.reshape(-1, self.vocab)

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
        self._drafting = False
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
