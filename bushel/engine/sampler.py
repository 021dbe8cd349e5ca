"""The sampling settings and state of a decode batch's rows, applied in one computation.

Rows are sorted by their settings into a few groups (`draw.route`), each one vectorised call.
Arrays that describe the rows are built when the rows change, not per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, IntegrityError, TokenLogprob
from bushel.engine import draw
from bushel.engine.penalties import Penalties

Logprobs = tuple[mx.array, mx.array, mx.array]  # chosen, values of the best, ids of the best


@dataclass
class Sampled:
    """One step's result, possibly not computed yet."""

    tokens: mx.array  # [B]
    logprobs: list[tuple[list[int], Logprobs]] = field(default_factory=list)  # of these rows

    def arrays(self) -> list[mx.array]:
        return [self.tokens, *(array for _, found in self.logprobs for array in found)]

    def read(self, rows: Sequence[Decoding]) -> tuple[list[int], list[TokenLogprob | None]]:
        """To host values; waits for the device."""
        tokens: Any = self.tokens.tolist()
        found: list[TokenLogprob | None] = [None] * len(tokens)
        for asked, arrays in self.logprobs:
            host: list[Any] = [array.tolist() for array in arrays]
            chosen, values, ids = host
            for at, row in enumerate(asked):
                count = rows[row].logprobs or 0
                best = tuple(zip(ids[at][:count], values[at][:count], strict=True))
                found[row] = TokenLogprob(tokens[row], chosen[at], best)
        return tokens, found


def logprobs_of(logits: mx.array, tokens: mx.array, count: int) -> Logprobs:
    """Raw float32 log-softmax of `tokens` [R], and the `count` best of each row of logits."""
    logits = logits.astype(mx.float32)
    norm = mx.logsumexp(logits, axis=-1, keepdims=True)
    chosen = (mx.take_along_axis(logits, tokens[:, None], axis=-1) - norm)[:, 0]
    values, ids = draw.top(logits, max(count, 1))
    return chosen, values - norm, ids


# One fused computation each: op by op they are several times as many kernels.
_DRAW: dict[draw.Route, Callable[..., mx.array]] = {
    "greedy": lambda logits: mx.argmax(logits, axis=-1),
    "narrow": mx.compile(draw.narrow),
    "wide": mx.compile(draw.wide),
    "ranked": mx.compile(draw.ranked),
}
# Steps of uniform numbers made at once: 25 small numpy calls, spread over so many steps.
_BLOCK = 32
_NO_LIMIT = 1 << 30  # a top_k beyond any vocabulary


def _column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values), dtype=mx.float32)[:, None]


@dataclass(frozen=True)
class _Group:
    """Rows that go through the same function, and their settings as its arguments."""

    draw: Callable[..., mx.array]
    rows: list[int]
    take: mx.array | None  # None: all rows of the batch, in order
    settings: tuple[mx.array | None, ...]  # empty: needs no uniform numbers either

    def tokens(self, logits: mx.array, u: np.ndarray | None) -> mx.array:
        if self.take is not None:
            logits = logits[self.take]
        arguments = () if u is None or not self.settings else (mx.array(u[self.rows]),)
        return self.draw(logits, *arguments, *self.settings).astype(mx.uint32)


def _company(row: Decoding) -> tuple[draw.Route, bool]:
    """Rows that are drawn in one call. How they are grouped changes no row's token.

    On a CPU work is dear and calls are cheap, so that only rows with a top_p pay for it; on a
    GPU it is the other way round.
    """
    route = draw.route(row)
    return route, _CPU and route == "wide" and row.top_p < 1


_CPU = mx.default_device() == mx.cpu


def _settings(route: draw.Route, rows: list[Decoding]) -> tuple[mx.array | None, ...]:
    """The arguments of a route's function, after the logits and the uniform numbers."""
    if route == "greedy":
        return ()
    temperature = _column([row.temperature for row in rows])
    min_p = _column([row.min_p for row in rows])
    top_p = _column([row.top_p if row.top_p < 1 else 2.0 for row in rows])
    if route == "wide":
        return (
            temperature,
            min_p if any(row.min_p for row in rows) else None,
            top_p if any(row.top_p < 1 for row in rows) else None,
        )
    top_k = mx.array([row.top_k or _NO_LIMIT for row in rows])[:, None]
    return temperature, min_p, top_k, top_p


class Sampler:
    """Owned by one decode batch; its rows are that batch's rows, in the same order."""

    def __init__(self, vocab: int):
        self.vocab = vocab
        self.rows: list[Decoding] = []
        self.penalties = Penalties(vocab)
        self._early: tuple[bool, ...] | None = None  # who is below min_tokens, as of _bias
        self._bias: mx.array | None = None  # [B, V]
        self._block_start: list[int] = []  # the positions that _block begins at
        self._arrange()

    def join(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None:
        self.penalties.join(len(self.rows), row, prompt, reply)
        self.rows.append(row)
        self._arrange()

    def leave(self, keep: Sequence[int]) -> None:
        self.penalties.leave(keep)
        self.rows = [self.rows[row] for row in keep]
        self._arrange()

    def sample(
        self, logits: mx.array, inputs: mx.array, indices: Sequence[int], positions: Sequence[int]
    ) -> Sampled:
        """Tokens for logits [B, V].

        `inputs` [B] are the tokens that led to them; row i's new token is number indices[i] of
        its reply and stands at positions[i] of its sequence.
        """
        raw = logits
        logits = self._adjust(logits, inputs, indices)
        u = self._uniforms(positions) if self._random else None
        parts = [group.tokens(logits, u) for group in self._groups]
        tokens = parts[0] if len(parts) == 1 else mx.concatenate(parts)[self._order]
        return Sampled(tokens, [self._logprobs(asked, raw, tokens) for asked in self._asked])

    def _logprobs(
        self, asked: list[int], logits: mx.array, tokens: mx.array
    ) -> tuple[list[int], Logprobs]:
        take = mx.array(asked)
        count = max(self.rows[row].logprobs or 0 for row in asked)
        return asked, logprobs_of(logits[take], tokens[take], count)

    def _uniforms(self, positions: Sequence[int]) -> np.ndarray:
        """Made a block of steps at a time, since rows move on together."""
        step = positions[0] - self._block_start[0] if self._block_start else _BLOCK
        if not 0 <= step < _BLOCK or [at + step for at in self._block_start] != list(positions):
            self._block = draw.uniforms([row.seed for row in self.rows], positions, _BLOCK)
            self._block_start, step = list(positions), 0
        block: np.ndarray = self._block[step]
        return block

    def _adjust(self, logits: mx.array, inputs: mx.array, indices: Sequence[int]) -> mx.array:
        logits = self.penalties.apply(logits, inputs, indices)
        if not self._biased:
            return logits
        bias = self._bias_at(indices)
        return logits if bias is None else logits.astype(mx.float32) + bias

    def _bias_at(self, indices: Sequence[int]) -> mx.array | None:
        """Logit bias, and end tokens held down while a reply is shorter than its min_tokens."""
        pairs = zip(self.rows, indices, strict=True)
        early = tuple(index < row.min_tokens for row, index in pairs)
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
        together: dict[tuple[draw.Route, bool], list[int]] = {}
        for at, row in enumerate(rows):
            together.setdefault(_company(row), []).append(at)
        self._groups = [self._group(key[0], mine) for key, mine in together.items()]
        order = [at for group in self._groups for at in group.rows]
        self._order = mx.array(np.argsort(order).astype(np.uint32))
        self._random = any(group.settings for group in self._groups)
        self._early = self._bias = None
        self._block_start = []
        self._biased = any(row.logit_bias or row.min_tokens for row in rows)
        asked = [(at, row.logprobs) for at, row in enumerate(rows) if row.logprobs is not None]
        few = [at for at, count in asked if count <= draw.CANDIDATES]
        many = [at for at, count in asked if count > draw.CANDIDATES]
        # Apart, because they break ties differently: a neighbour must not change the choice.
        self._asked = [group for group in (few, many) if group]

    def _group(self, name: draw.Route, rows: list[int]) -> _Group:
        mine = [self.rows[at] for at in rows]
        take = None if len(rows) == len(self.rows) else mx.array(rows)
        return _Group(_DRAW[name], rows, take, _settings(name, mine))

    def check_integrity(self) -> None:
        self.penalties.check_integrity()
        penalised = [at for at, row in enumerate(self.rows) if row.penalised]
        if self.penalties.rows != penalised:
            raise IntegrityError(f"penalties of rows {self.penalties.rows}, not {penalised}")
