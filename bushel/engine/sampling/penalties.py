"""What the penalised rows of a batch have said, and what that does to their logits.

Only rows with a penalty have state here; the others' logits pass through untouched. Where the order
of what was said matters to some row, there is a `TokenHistory` beside its counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, IntegrityError
from bushel.engine.sampling import draw
from bushel.engine.sampling.history import TokenHistory

_penalise = mx.compile(draw.penalise)


class Penalties:
    """Owned by a `Sampler`; `rows` are indices into that sampler's rows, in rising order."""

    def __init__(self, vocab: int):
        self.vocab = vocab
        self.rows: list[int] = []
        self._settings: list[tuple[float, float, float, float]] = []
        self._seen: mx.array | None = None  # [P, V] 1 where it is in the prompt
        self._counts: mx.array | None = None  # [P, V] in the reply, without the newest token
        self._history: TokenHistory | None = None  # if some row remembers

    def join(self, at: int, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None:
        if not row.reworked:
            return
        if row.remembers and self._history is None:
            self._history = TokenHistory(self.vocab, len(self.rows))
        if self._history is not None:
            self._history.join(row, prompt, reply)
        seen, counts = np.zeros((2, 1, self.vocab), np.float32)
        seen[0, list(prompt)] = 1.0
        np.add.at(counts[0], list(reply[:-1]), 1.0)
        self._seen = _stacked(self._seen, mx.array(seen))
        self._counts = _stacked(self._counts, mx.array(counts))
        self.rows.append(at)
        repetition = row.repetition_penalty
        settings = repetition, 1 / repetition, row.presence_penalty, row.frequency_penalty
        self._settings.append(settings)
        self._arrange()

    def leave(self, keep: Sequence[int]) -> None:
        """The sampler keeps these of its rows, in this order."""
        mine = {at: own for own, at in enumerate(self.rows)}
        kept = [(new, mine[at]) for new, at in enumerate(keep) if at in mine]
        self.rows = [new for new, _ in kept]
        self._settings = [self._settings[own] for _, own in kept]
        if self._seen is None or self._counts is None:
            return
        if not kept:
            self._seen = self._counts = self._history = None
            return
        if self._history is not None:
            self._history.leave([own for _, own in kept])
            self._history = self._history if self._history.needed else None
        take = mx.array([own for _, own in kept])
        self._seen, self._counts = self._seen[take], self._counts[take]
        self._arrange()

    def apply(self, logits: mx.array, inputs: mx.array, indices: Sequence[int]) -> mx.array | None:
        """Of logits [B, V] those of its rows, after penalties; None if it has no row.

        `inputs` [B] are counted where they are of a reply.
        """
        if self._seen is None or self._counts is None:
            return None
        last = newest = inputs.astype(mx.int32)
        if not all(indices[at] for at in self.rows):
            newest = mx.where(mx.array(list(indices)) > 0, newest, -1)
        some, history = len(self.rows) < len(indices), self._history
        if some:
            logits, newest = logits[self._take], newest[self._take]
        said = self._seen, self._counts
        if history is None:
            penalised, self._counts = _penalise(logits, newest, *said, *self._columns)
            return penalised
        history.add(last[self._take] if some else last)
        window = history.window()
        penalised, self._counts = _penalise(logits, newest, *said, *self._columns, window=window)
        return history.apply(penalised)

    def _arrange(self) -> None:
        self._take = rows_at(self.rows)
        # Repetition penalty, its inverse, presence and frequency penalties, [P, 1] each.
        settings = zip(*self._settings, strict=True)
        one, two, three, four = (mx.array(list(them))[:, None] for them in settings)
        self._columns = one, two, three, four

    def check_integrity(self) -> None:
        shape = (len(self.rows), self.vocab)
        for array in (self._seen, self._counts):
            if (array is None) == bool(self.rows) or (array is not None and array.shape != shape):
                raise IntegrityError(f"penalty state for rows {self.rows}")
        if self._history is not None:
            self._history.check_integrity(len(self.rows))


def rows_at(rows: list[int]) -> mx.array | slice:
    """What takes these from a batch. One alone is taken without a copy."""
    return slice(rows[0], rows[0] + 1) if len(rows) == 1 else mx.array(rows)


def _stacked(rows: mx.array | None, row: mx.array) -> mx.array:
    return row if rows is None else mx.concatenate([rows, row])
