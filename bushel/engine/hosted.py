"""Choosing tokens on the host, for MLX's CPU build, row by row.

Logits are in the host's memory there, and MLX hardly runs ahead of whoever asks for them: its
queue is short, so that waiting for them here costs little. Numpy's loops are several times as
fast as MLX's on a CPU (`exp` 30 times on x86, sorting 20), and a row whose first draw will do
needs no second one. What it means is `draw`'s, which is the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, IntegrityError
from bushel.engine import draw
from bushel.engine.chooser import Masks, Turn

_GROUP = draw.GROUP


class _Said:
    """The tokens of a penalised row's prompt and reply."""

    def __init__(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]):
        self._row = row
        self._places: dict[int, int] = {}
        self._ids = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.float32)  # of the reply, by place
        self._note(prompt)
        for token in reply:
            self.count(token)

    def _note(self, tokens: Sequence[int]) -> None:
        new = [token for token in dict.fromkeys(tokens) if token not in self._places]
        self._places |= {token: len(self._ids) + at for at, token in enumerate(new)}
        self._ids = np.append(self._ids, new).astype(np.int64)
        self._counts = np.append(self._counts, np.zeros(len(new), np.float32))

    def count(self, token: int) -> None:
        if token not in self._places:
            self._note([token])
        self._counts[self._places[token]] += 1

    def penalise(self, x: np.ndarray) -> np.ndarray:
        """Logits [V] after repetition, presence and frequency penalties: see `draw.penalise`."""
        row, found = self._row, x[self._ids]
        repetition = np.float32(row.repetition_penalty)
        found = np.where(found > 0, found / repetition, found * repetition)
        found -= np.float32(row.frequency_penalty) * self._counts
        found -= np.where(self._counts > 0, np.float32(row.presence_penalty), np.float32(0))
        changed = x.copy()
        changed[self._ids] = found
        return changed


class Hosted:
    """A `Chooser` for MLX's CPU build."""

    def __init__(self, vocab: int):
        self._vocab = vocab
        self._rows: list[Decoding] = []
        self._said: list[_Said | None] = []
        self._arrange()

    def join(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None:
        self._rows.append(row)
        self._said.append(_Said(row, prompt, reply[:-1]) if row.penalised else None)
        self._arrange()

    def leave(self, keep: Sequence[int]) -> None:
        self._rows = [self._rows[at] for at in keep]
        self._said = [self._said[at] for at in keep]
        self._arrange()

    def _arrange(self) -> None:
        self._uniforms = draw.Uniforms([row.seed for row in self._rows])
        self._random = any(draw.route(row) != "greedy" for row in self._rows)
        self._plain = not self._random and not any(self._said)

    def tokens(self, logits: mx.array, turn: Turn) -> mx.array:
        if self._plain and turn.bias is None and turn.masks is None:
            return mx.argmax(logits, axis=-1)  # and the next step is built while it is computed
        held = None if turn.masks is None else _Held(turn.masks)
        bias = None if turn.bias is None else np.asarray(turn.bias)
        if any(self._said):
            inputs: Any = turn.inputs.tolist()
        u = self._uniforms.at(turn.positions) if self._random else None
        chosen = np.zeros(len(self._rows), np.uint32)
        for at, x in enumerate(np.asarray(logits.astype(mx.float32))):
            row, said = self._rows[at], self._said[at]
            if said is not None:
                if turn.indices[at]:
                    said.count(inputs[at])
                x = said.penalise(x)
            if bias is not None and (row.logit_bias or row.min_tokens):
                x = x + bias[at]
            if held is not None:
                x = held.apply(at, x)
            chosen[at] = x.argmax() if u is None else _token(x, row, u[at])
        return mx.array(chosen)

    def check_integrity(self) -> None:
        penalised = [row.penalised for row in self._rows]
        if penalised != [said is not None for said in self._said]:
            raise IntegrityError(f"penalties of rows that have none, or none: {penalised}")


class _Held:
    """Masks as the host reads them."""

    def __init__(self, masks: Masks):
        self._slots: Any = masks.slots.tolist()
        self._words = np.asarray(masks.words)

    def apply(self, at: int, x: np.ndarray) -> np.ndarray:
        """Row `at`'s logits without what its mask forbids."""
        slot = self._slots[at]
        if slot == len(self._words) - 1:
            return x
        bits = np.unpackbits(self._words[slot].view(np.uint8), count=len(x), bitorder="little")
        return np.where(bits, x, np.float32(-np.inf))


def _token(x: np.ndarray, row: Decoding, u: np.ndarray) -> int:
    """One of logits [V], by a row's settings and its uniform numbers [2 * TRIES]."""
    route = draw.route(row)
    if route == "greedy":
        return int(x.argmax())
    if route == "wide":
        return _wide(x, row, u)
    if route == "narrow" and len(x) > draw.CANDIDATES:
        best = np.argpartition(x, -draw.CANDIDATES)[-draw.CANDIDATES :]
        order = best[np.argsort(-x[best])]
    else:
        order = np.argsort(-x)
    return int(order[_pick_ranked(x[order], row, u)])


def _wide(x: np.ndarray, row: Decoding, u: np.ndarray) -> int:
    x = (x - x.max()) / np.float32(row.temperature)
    weights = np.exp(x)
    if row.min_p:
        weights *= x >= np.float32(np.log(row.min_p))
    groups = np.add.reduceat(weights, np.arange(0, len(weights), _GROUP))
    sums = np.cumsum(groups)
    for at in range(draw.TRIES):
        group = _pick(sums, u[at])
        first = group * _GROUP
        token = first + _pick(np.cumsum(weights[first : first + _GROUP]), u[draw.TRIES + at])
        # In the nucleus if all that are likelier have less than top_p together.
        if row.top_p >= 1 or weights[weights > weights[token]].sum() < row.top_p * sums[-1]:
            return int(token)
    return int(x.argmax())


def _pick(sums: np.ndarray, u: np.float32) -> int:
    """Where u falls among running sums; never on a weight of 0, nor beyond them if one is NaN."""
    total = sums[-1]
    last = min(np.searchsorted(sums, total), len(sums) - 1)
    return int(min(np.searchsorted(sums, u * total, side="right"), last))


def _pick_ranked(values: np.ndarray, row: Decoding, u: np.ndarray) -> int:
    """A place among logits in falling order. What is kept is their beginning."""
    values = (values - values[0]) / np.float32(row.temperature)
    kept = min(row.top_k or len(values), len(values))
    if row.min_p:
        least = np.float32(np.log(row.min_p))
        kept = min(kept, int(np.searchsorted(-values, -least, side="right")))
    probs = np.exp(values[: max(kept, 1)])
    sums = np.cumsum(probs)
    if row.top_p < 1:
        # The most likely token is always kept, also at top_p 0.
        inside = np.searchsorted(sums - probs, np.float32(row.top_p) * sums[-1])
        sums = sums[: max(int(inside), 1)]
    return _pick(sums, u[0])
