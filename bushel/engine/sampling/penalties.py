"""What the penalised rows of a batch have said, and what that does to their logits.

Only rows with a penalty have state here; the others' logits pass through untouched. Where the order
of what was said matters to some row, there is a `TokenHistory` beside its counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, IntegrityError
from bushel.engine.sampling import draw
from bushel.engine.sampling.history import HistoryState, TokenHistory

_penalise = mx.compile(draw.penalise)


class _Draft(NamedTuple):
    newest: mx.array  # [P, W] inputs of replies; -1: of a prompt
    histories: list[HistoryState]  # along it, from the one before it


class Penalties:
    """Owned by a `Sampler`; `rows` are indices into that sampler's rows, in rising order."""

    def __init__(self, vocab: int):
        self.vocab = vocab
        self.rows: list[int] = []
        self._settings: list[tuple[float, float, float, float]] = []
        self._seen: mx.array | None = None  # [P, V] 1 where it is in the prompt
        self._counts: mx.array | None = None  # [P, V] in the reply, without the newest token
        self._history: TokenHistory | None = None  # if some row remembers
        self._draft: _Draft | None = None  # that may be kept

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
        if self._counts is None:
            return None
        last = newest = inputs.astype(mx.int32)
        if not all(indices[at] for at in self.rows):
            newest = mx.where(mx.array(list(indices)) > 0, newest, -1)
        if len(self.rows) < len(indices):
            logits, newest, last = logits[self._take], newest[self._take], last[self._take]
        penalised, self._counts = self._after(logits, self._counts, newest, last)
        return penalised

    def _after(
        self, logits: mx.array, counts: mx.array, newest: mx.array, last: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Of its rows, logits [P, V] after penalties, and counts with the newest tokens [P].

        last: those too that are of a prompt. They are added to the history.
        """
        assert self._seen is not None
        history, settings = self._history, (self._seen, counts, *self._columns)
        if history is None:
            penalised, counts = _penalise(logits, newest, *settings)
            return penalised, counts
        history.add(last)
        penalised, counts = _penalise(logits, newest, *settings, window=history.window())
        return history.apply(penalised), counts

    def apply_along(
        self, logits: mx.array, inputs: mx.array, indices: Sequence[int]
    ) -> mx.array | None:
        """The same at every place of a draft [B * W, V], after each of inputs [B, W].

        Nothing has been said then, until `keep` says how much.
        """
        if self._counts is None:
            return None
        width, counts, history = inputs.shape[1], self._counts, self._history
        last = newest = inputs.astype(mx.int32)[self._take]
        if not all(indices[at] for at in self.rows):
            first = np.array([[indices[at]] for at in self.rows])
            newest = mx.where(mx.array(first + np.arange(width) > 0), newest, -1)
        places = np.array(self.rows) * width + np.arange(width)[:, None]
        columns, penalised = logits[mx.array(places)], list[mx.array]()
        histories = list[HistoryState]()
        if history is not None:
            history.make_room(width)
            histories.append(history.state())
        for at in range(width):
            after, counts = self._after(columns[at], counts, newest[:, at], last[:, at])
            penalised.append(after)
            if history is not None:
                histories.append(history.state())
        if history is not None:
            history.go_back(histories[0])
        self._draft = _Draft(newest, histories)
        return mx.stack(penalised, axis=1).reshape(-1, self.vocab)

    def keep(self, kept: Sequence[int]) -> None:
        """Say the first kept[i] of the inputs of the sampler's row i."""
        if self._counts is None:
            return
        assert self._draft is not None
        (newest, histories), self._draft = self._draft, None
        mine = [kept[at] for at in self.rows]
        said = mx.arange(newest.shape[1]) < mx.array(mine)[:, None]
        places = mx.arange(len(mine))[:, None], mx.maximum(newest, 0)
        self._counts = self._counts.at[places].add((said & (newest >= 0)).astype(mx.float32))
        if self._history is not None:
            self._history.pick(histories, mine)

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
