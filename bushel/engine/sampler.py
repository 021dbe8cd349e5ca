"""The sampling settings and state of a decode batch's rows, applied in one computation.

Rows are sorted by their settings into at most three groups, each one vectorised call:
  greedy   temperature 0, or top_k 1
  narrow   1 < top_k <= CANDIDATES: from sorted candidates
  wide     everything else
Arrays that describe the rows are built when the rows change, not per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, IntegrityError, TokenLogprob
from bushel.engine import draw


@dataclass(frozen=True)
class RowStep:
    """What the host knows about one row's next token, before any of it is computed."""

    index: int  # of the token within its reply
    u: tuple[float, float]

    @classmethod
    def of(cls, decoding: Decoding, index: int, position: int) -> RowStep:
        return cls(index, draw.uniforms(decoding.seed, position))


@dataclass
class Sampled:
    """One step's result, possibly not computed yet."""

    tokens: mx.array  # [B]
    logprob_rows: list[int] = field(default_factory=list)
    logprobs: tuple[mx.array, mx.array, mx.array] | None = None  # chosen, top values, top ids

    def arrays(self) -> list[mx.array]:
        return [self.tokens, *(self.logprobs or ())]

    def read(self, rows: Sequence[Decoding]) -> tuple[list[int], list[TokenLogprob | None]]:
        """To host values; waits for the device."""
        tokens: Any = self.tokens.tolist()
        found: list[TokenLogprob | None] = [None] * len(tokens)
        if self.logprobs is not None:
            host: list[Any] = [array.tolist() for array in self.logprobs]
            chosen, values, ids = host
            for at, row in enumerate(self.logprob_rows):
                count = rows[row].logprobs or 0
                best = tuple(zip(ids[at][:count], values[at][:count], strict=True))
                found[row] = TokenLogprob(tokens[row], chosen[at], best)
        return tokens, found


def logprobs_of(
    logits: mx.array, tokens: mx.array, count: int
) -> tuple[mx.array, mx.array, mx.array]:
    """Raw float32 log-softmax of `tokens` [R], and the `count` best of each row of logits."""
    logits = logits.astype(mx.float32)
    norm = mx.logsumexp(logits, axis=-1, keepdims=True)
    chosen = (mx.take_along_axis(logits, tokens[:, None], axis=-1) - norm)[:, 0]
    values, ids = draw.top(logits, max(count, 1))
    return chosen, values - norm, ids


def _column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values), dtype=mx.float32)[:, None]


@dataclass(frozen=True)
class _Group:
    rows: list[int]
    take: mx.array | None  # None: all rows, in order
    temperature: mx.array
    top_k: mx.array | None
    min_p: mx.array | None
    top_p: mx.array | None

    def of(self, logits: mx.array) -> mx.array:
        return (logits if self.take is None else logits[self.take]).astype(mx.float32)


def _is_greedy(row: Decoding) -> bool:
    return row.temperature == 0 or row.top_k == 1


def _is_narrow(row: Decoding) -> bool:
    return not _is_greedy(row) and 1 < row.top_k <= draw.CANDIDATES


class Sampler:
    """Owned by one decode batch; its rows are that batch's rows, in the same order."""

    def __init__(self, vocab: int):
        self.vocab = vocab
        self.rows: list[Decoding] = []
        self._seen: mx.array | None = None  # [B, V] in the prompt
        self._counts: mx.array | None = None  # [B, V] in the reply, without the newest token
        self._early: tuple[bool, ...] | None = None  # who is below min_tokens, as of _bias
        self._bias: mx.array | None = None  # [B, V]
        self._arrange()

    def join(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None:
        if row.penalised and self._counts is None:
            self._seen = mx.zeros((len(self.rows), self.vocab), mx.bool_)
            self._counts = mx.zeros((len(self.rows), self.vocab), mx.float32)
        if self._counts is not None and self._seen is not None:
            seen = np.zeros((1, self.vocab), np.bool_)
            counts = np.zeros((1, self.vocab), np.float32)
            if row.penalised:
                seen[0, list(prompt)] = True
                np.add.at(counts[0], list(reply[:-1]), 1.0)
            self._seen = mx.concatenate([self._seen, mx.array(seen)])
            self._counts = mx.concatenate([self._counts, mx.array(counts)])
        self.rows.append(row)
        self._arrange()

    def leave(self, keep: Sequence[int]) -> None:
        self.rows = [self.rows[row] for row in keep]
        if not any(row.penalised for row in self.rows):
            self._seen = self._counts = None
        elif self._seen is not None and self._counts is not None:
            take = mx.array(list(keep))
            self._seen, self._counts = self._seen[take], self._counts[take]
        self._arrange()

    def sample(self, logits: mx.array, inputs: mx.array, steps: Sequence[RowStep]) -> Sampled:
        """Tokens for logits [B, V]; `inputs` [B] are the tokens that led to them."""
        raw = logits
        logits = self._adjust(logits, inputs, steps)
        tokens = self._choose(logits, steps)
        asked = self._logprob_rows
        if not asked:
            return Sampled(tokens)
        take = mx.array(asked)
        count = max(self.rows[row].logprobs or 0 for row in asked)
        return Sampled(tokens, asked, logprobs_of(raw[take], tokens[take], count))

    def _adjust(self, logits: mx.array, inputs: mx.array, steps: Sequence[RowStep]) -> mx.array:
        if self._counts is not None and self._seen is not None:
            newest = mx.array([1.0 if step.index else 0.0 for step in steps])
            self._counts = self._counts.at[mx.arange(len(steps)), inputs].add(newest)
            logits = draw.penalise(
                logits.astype(mx.float32), self._seen, self._counts, *self._penalties
            )
        bias = self._bias_at(steps)
        return logits if bias is None else logits.astype(mx.float32) + bias

    def _choose(self, logits: mx.array, steps: Sequence[RowStep]) -> mx.array:
        if self._wide is None and self._narrow is None:
            return mx.argmax(logits, axis=-1)
        u = mx.array([step.u for step in steps], dtype=mx.float32)
        parts = []
        if self._greedy is not None:
            parts.append(mx.argmax(logits[self._greedy], axis=-1))
        draws: tuple[tuple[_Group | None, Any], ...] = (
            (self._narrow, draw.draw_narrow),
            (self._wide, draw.draw_wide),
        )
        for group, pick in draws:
            if group is not None:
                mine = u if group.take is None else u[group.take]
                settings = (group.temperature, group.top_k, group.min_p, group.top_p)
                parts.append(pick(group.of(logits), *settings, mine).astype(mx.uint32))
        if len(parts) == 1:
            return parts[0]
        return mx.concatenate(parts)[self._order]

    def _bias_at(self, steps: Sequence[RowStep]) -> mx.array | None:
        """Logit bias, and end tokens held down while a reply is shorter than its min_tokens."""
        pairs = zip(self.rows, steps, strict=True)
        early = tuple(step.index < row.min_tokens for row, step in pairs)
        if early != self._early:
            self._early = early
            self._bias = self._make_bias(early)
        return self._bias

    def _make_bias(self, early: Sequence[bool]) -> mx.array | None:
        if not any(early) and not any(row.logit_bias for row in self.rows):
            return None
        bias = np.zeros((len(self.rows), self.vocab), np.float32)
        for at, (row, held) in enumerate(zip(self.rows, early, strict=True)):
            for token, value in row.logit_bias:
                bias[at, token] = value
            if held:
                bias[at, list(row.banned_early)] = -np.inf
        return mx.array(bias)

    def _arrange(self) -> None:
        rows = self.rows
        greedy = [at for at, row in enumerate(rows) if _is_greedy(row)]
        narrow = [at for at, row in enumerate(rows) if _is_narrow(row)]
        chosen = {*greedy, *narrow}
        wide = [at for at in range(len(rows)) if at not in chosen]
        self._greedy = mx.array(greedy) if greedy else None
        self._narrow = self._group(narrow, always=True)
        self._wide = self._group(wide, always=False)
        self._order = mx.array(np.argsort([*greedy, *narrow, *wide])) if rows else None
        self._early = self._bias = None
        self._logprob_rows = [at for at, row in enumerate(rows) if row.logprobs is not None]
        if self._counts is not None:
            self._penalties = (
                _column([row.repetition_penalty for row in rows]),
                _column([row.presence_penalty for row in rows]),
                _column([row.frequency_penalty for row in rows]),
            )

    def _group(self, rows: list[int], *, always: bool) -> _Group | None:
        """`always`: keep settings that no row uses, for functions that take them all."""
        if not rows:
            return None
        mine = [self.rows[at] for at in rows]
        k = [row.top_k or self.vocab for row in mine]
        return _Group(
            rows=rows,
            take=None if len(rows) == len(self.rows) else mx.array(rows),
            temperature=_column([row.temperature for row in mine]),
            top_k=mx.array(k)[:, None] if always or min(k) < self.vocab else None,
            min_p=_column([row.min_p for row in mine])
            if always or any(row.min_p for row in mine)
            else None,
            top_p=_column([row.top_p for row in mine])
            if always or any(row.top_p < 1 for row in mine)
            else None,
        )

    def check_integrity(self) -> None:
        shape = (len(self.rows), self.vocab)
        for array in (self._seen, self._counts):
            if array is not None and array.shape != shape:
                raise IntegrityError(f"penalty state {array.shape} for rows {shape}")
