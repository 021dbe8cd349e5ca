"""Scripts of what happens to a batch whose rows take drafts, and what each of its rows says alone.

Alone, a row steps token by token through its library's own caches. What it would say is compared
after every token that was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st

from bushel.cache import BatchState
from bushel.core import Prepared
from bushel.engine.row_state import new_row
from bushel.models import Model
from bushel.models.model import State
from tests.families.checkpoint import FIRST_SPECIAL, VOCAB
from tests.families.text import WINDOW

BOUND = 1e-4
MOST_ROWS = 4
WIDE = 8
# Shorter than a window, longer, and past a ring's end.
LENGTHS = (1, 2, WINDOW - 3, WINDOW + 9, 3 * WINDOW + 2)


@dataclass(frozen=True)
class Join:
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Leave:
    """The row at this share of all of them; it may come back, behind them."""

    where: float
    back: bool


@dataclass(frozen=True)
class Draft:
    """Shares of the widest draft for rows in turn, and of each draft what is kept of it."""

    depths: tuple[float, ...]
    kept: tuple[float, ...]


@dataclass(frozen=True)
class Step:
    pass


Act = Join | Leave | Draft | Step
_share = st.floats(0, 0.999)
_shares = st.lists(_share, min_size=MOST_ROWS, max_size=MOST_ROWS).map(tuple)
joins = st.lists(st.sampled_from(LENGTHS), min_size=1, max_size=2).map(tuple).map(Join)
acts = st.one_of(
    st.builds(Draft, _shares, _shares),
    st.builds(Draft, _shares, _shares),
    st.just(Step()),
    joins,
    st.builds(Leave, _share, st.booleans()),
)
scripts = st.tuples(joins, st.lists(acts, min_size=2, max_size=9)).map(lambda of: [of[0], *of[1]])


@dataclass
class Alone:
    state: State
    position: int


class Rows:
    """A batch, and its rows by themselves."""

    def __init__(self, model: Model):
        self.model = model
        self.batch = BatchState(model.make_state, model.pages, drafts=True)
        self.alone: list[Alone] = []
        self._rng = np.random.default_rng(0)
        self.worst = 0.0

    def play(self, script: Sequence[Act]) -> float:
        """The largest difference that there was."""
        for act in script:
            match act:
                case Join(lengths):
                    self.join(lengths[: MOST_ROWS - len(self.alone)])
                case Leave(where, back):
                    self.leave(int(where * len(self.alone)), back=back)
                case Draft(depths, kept):
                    counts = [1 + int(WIDE * depth) for depth in depths][: len(self.alone)]
                    pairs = zip(counts, kept, strict=False)
                    self.draft(counts, [1 + int(share * count) for count, share in pairs])
                case Step():
                    self.step()
            self.batch.check_integrity()
            if self.model.pages is not None:
                self.model.pages.check_integrity()
        return self.worst

    def join(self, lengths: Sequence[int]) -> None:
        rows = []
        for length in lengths:
            prompt = self.model.embed(Prepared(tuple(self._words(length))))
            state, alone = new_row(self.model), self.model.make_state()
            for each in (state, alone):
                mx.eval(self.model.prefill(prompt, 0, length, each))
            rows.append((state, length))
            self.alone.append(Alone(alone, length))
        if rows:
            self.batch.join_all(rows)

    def leave(self, row: int, *, back: bool) -> None:
        if not self.alone or (len(self.alone) == 1 and not back):
            return
        kept, alone = self.batch.snapshot(row), self.alone.pop(row)
        self.batch.leave([other for other in range(len(self.batch)) if other != row])
        if back:
            self.batch.join(kept.restore(new_row(self.model)), kept.position)
            self.alone.append(alone)

    def step(self) -> None:
        tokens = [self._words(1) for _ in self.alone]
        self.batch.reserve(1)
        logits = self._forward(tokens)
        self.batch.advance([1] * len(self.alone))
        self._compare(tokens, logits, [1] * len(self.alone))

    def draft(self, counts: Sequence[int], kept: Sequence[int]) -> None:
        width = max(counts)
        drafts = [self._words(count) for count in counts]
        tokens = [draft + draft[-1:] * (width - len(draft)) for draft in drafts]
        self.batch.reserve(width)
        self.batch.begin_draft(counts)
        logits = self._forward(tokens)
        self.batch.end_draft(kept)
        self._compare(tokens, logits, kept)

    def _forward(self, tokens: Sequence[Sequence[int]]) -> np.ndarray:
        given = mx.array([list(row) for row in tokens])
        return np.array(self.model.forward(given, self.batch.positions, self.batch.layers))

    def _compare(
        self, tokens: Sequence[Sequence[int]], logits: np.ndarray, kept: Sequence[int]
    ) -> None:
        for row, alone in enumerate(self.alone):
            for column in range(kept[row]):
                token = mx.array([[tokens[row][column]]])
                said = np.array(self.model.forward(token, [alone.position], alone.state))[0, -1]
                alone.position += 1
                difference = float(np.abs(said - logits[row, column]).max())
                self.worst = max(self.worst, np.inf if np.isnan(difference) else difference)

    def _words(self, count: int) -> list[int]:
        return [int(word) for word in self._rng.integers(FIRST_SPECIAL + 20, VOCAB, count)]
