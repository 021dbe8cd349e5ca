"""What rows have said in its order, prompt included, for settings to which the order matters.

Tokens lie on the device, the newest at the right end, so that age is the same column for all rows:

    tokens   -1  -1  the  cat  sat  .  the  cat      -1: nothing yet
    matches   0   0    0    2    0  0    0    0      how long what ends here equals the row's end
    age       7   6    5    4    3  2    1    0

A new token moves all of them one to the left. What ended one column further left has then been
followed by what stands here, so that its match goes on in place if that is the new token: nothing
has to be looked for, and nothing waits for the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, IntegrityError
from bushel.engine.sampling import draw

# Columns by which rows grow, at least: few shapes, and seldom a copy.
_BLOCK = 256
# A repetition that is longer by more than this counts as so much longer. What DRY takes off then
# is beyond any logit, unless its base is next to 1.
LONGEST = 128
_ALL = 1 << 30  # tokens to look back at
_ANY, _NEVER = -2, -3  # of a bad word's beginning: any token does; none does


@dataclass(frozen=True)
class _RememberingRow:
    decoding: Decoding
    length: int  # tokens that it has said, prompt included

    @property
    def reach(self) -> int:
        """How many of the last tokens make a difference."""
        row = self.decoding
        words = max((len(word) - 1 for word in row.token_rules.banned), default=0)
        window = row.repeat_last_n if row.windowed else 0
        dry = (row.dry_penalty_last_n if row.dry_penalty_last_n > 0 else _ALL) if _dry(row) else 0
        return max(words, window, dry)

    @property
    def needs(self) -> int:
        return min(self.reach, self.length)

    def longer(self, tokens: int) -> _RememberingRow:
        return _RememberingRow(self.decoding, self.length + tokens)


def _dry(row: Decoding) -> bool:
    return row.dry_multiplier > 0


class HistoryState(NamedTuple):
    """What a history holds of its rows' tokens."""

    rows: list[_RememberingRow | None]
    said: mx.array
    tokens: mx.array
    matches: mx.array


class TokenHistory:
    """Owned by `Penalties`, whose rows it has; those that need none of it have an empty one."""

    def __init__(self, vocab: int, rows: int):
        """rows: how many there are already, none of which needs it."""
        self._vocab = vocab
        self._rows: list[_RememberingRow | None] = [None] * rows
        self._said: mx.array = mx.zeros((rows, 1), dtype=mx.int32)  # tokens of the reply
        self._tokens: mx.array = mx.full((rows, _BLOCK), -1, dtype=mx.int32)
        self._matches: mx.array = mx.zeros((rows, _BLOCK), dtype=mx.int32)

    @property
    def needed(self) -> bool:
        return any(row is not None for row in self._rows)

    def join(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None:
        """Its newest token comes with the next step."""
        before = [*prompt, *reply][:-1]
        mine = _RememberingRow(row, len(before)) if row.remembers else None
        self._rows.append(mine)
        needs = 0 if mine is None else mine.needs
        self._widen(needs)
        width = self._tokens.shape[1]
        tokens, matches = np.full(width, -1, np.int32), np.zeros(width, np.int32)
        if needs:
            tokens[-needs:] = before[-needs:]
        if _dry(row):
            matches[:] = repeats(tokens, row)
        self._tokens = mx.concatenate([self._tokens, mx.array(tokens)[None]])
        self._matches = mx.concatenate([self._matches, mx.array(matches)[None]])
        said = mx.array([[len(reply) - 1]], dtype=mx.int32)
        self._said = mx.concatenate([self._said, said])
        self._arrange()

    def leave(self, keep: Sequence[int]) -> None:
        take = mx.array(list(keep))
        self._rows = [self._rows[at] for at in keep]
        self._tokens, self._matches = self._tokens[take], self._matches[take]
        self._said = self._said[take]
        self._arrange()

    def state(self) -> HistoryState:
        return HistoryState(self._rows, self._said, self._tokens, self._matches)

    def go_back(self, state: HistoryState) -> None:
        """To a state of the same rows, with as much room."""
        self._rows, self._said, self._tokens, self._matches = state

    def pick(self, states: Sequence[HistoryState], chosen: Sequence[int]) -> None:
        """Take row i's part from states[chosen[i]]."""
        take = mx.array(list(chosen)), mx.arange(len(chosen))
        self._rows = [states[at].rows[row] for row, at in enumerate(chosen)]
        self._said = mx.stack([state.said for state in states])[take]
        self._tokens = mx.stack([state.tokens for state in states])[take]
        self._matches = mx.stack([state.matches for state in states])[take]

    def make_room(self, tokens: int) -> None:
        """So that nothing moves while so many are added."""
        rows = [row.longer(tokens) for row in self._rows if row is not None]
        self._widen(max((row.needs for row in rows), default=0))

    def add(self, newest: mx.array) -> None:
        """Every row's newest token [P], the last one of its prompt at first."""
        self.make_room(1)
        self._rows = [row and row.longer(1) for row in self._rows]
        newest = newest[:, None]
        self._tokens = mx.concatenate([self._tokens[:, 1:], newest], axis=1)
        if self._words is not None:
            self._said = self._said + 1
        if self._breaks is not None:
            goes_on = (self._tokens == newest) & (self._ages > 0)
            goes_on = goes_on & ~mx.take_along_axis(self._breaks, newest, axis=1)
            self._matches = mx.where(goes_on, self._matches + 1, 0)

    def window(self) -> tuple[mx.array, mx.array] | None:
        """Rows [P, 1] that have one, and [P, V] 1 for the tokens in it; None if no row has one."""
        if self._windowed is None:
            return None
        inside = ((self._ages < self._windows) & (self._tokens >= 0)).astype(mx.float32)
        none = mx.zeros((len(self._rows), self._vocab))
        places = self._numbers, mx.maximum(self._tokens, 0)
        return self._windowed, none.at[places].maximum(inside)

    def apply(self, x: mx.array) -> mx.array:
        """Logits [P, V] after DRY, and without the ends of bad words that have begun."""
        if self._breaks is not None:
            x = x - self._dry_penalties()
        if self._words is not None:
            begun = self._tokens[:, None, -self._words.shape[2] :]
            met = ((begun == self._words) | (self._words == _ANY)).all(axis=2)
            banned = mx.where(met & (self._said >= self._lengths), draw.RULED_OUT, 0.0)
            x = x.at[self._numbers, self._ends].add(banned)
        return x

    def _dry_penalties(self) -> mx.array:
        """[P, V]: for every token, by the longest repetition that it would go on with."""
        lengths = mx.minimum(self._matches, self._dry_windows - self._ages)[:, :-1]
        following = mx.maximum(self._tokens[:, 1:], 0)
        beyond = lengths - self._allowed
        powers = mx.power(self._bases, mx.minimum(beyond, LONGEST).astype(mx.float32))
        penalties = mx.minimum(self._multipliers * powers, -draw.RULED_OUT)
        penalties = mx.where((beyond >= 0) & (lengths > 0), penalties, 0.0)
        none = mx.zeros((len(self._rows), self._vocab))
        return none.at[self._numbers, following].maximum(penalties)

    def _widen(self, width: int) -> None:
        more = width - self._tokens.shape[1]
        if more > 0:
            more = max(more, _BLOCK, self._tokens.shape[1] // 4)
            self._tokens = mx.pad(self._tokens, [(0, 0), (more, 0)], constant_values=-1)
            self._matches = mx.pad(self._matches, [(0, 0), (more, 0)])
            self._number_ages()

    def _number_ages(self) -> None:
        self._ages = mx.arange(self._tokens.shape[1] - 1, -1, -1, dtype=mx.int32)

    def _arrange(self) -> None:
        """Settings as arrays; None where no row has such."""
        rows = [None if row is None else row.decoding for row in self._rows]
        self._number_ages()
        self._numbers = mx.arange(len(rows))[:, None]
        windows = [min(row.repeat_last_n, _ALL) if row and row.windowed else 0 for row in rows]
        self._windows = _column(windows)
        self._windowed = self._windows > 0 if any(windows) else None  # [P, 1]
        self._arrange_dry(rows)
        self._arrange_words(rows)

    def _arrange_dry(self, rows: Sequence[Decoding | None]) -> None:
        self._breaks: mx.array | None = None  # [P, V]
        dry = [row if row and _dry(row) else None for row in rows]
        if not any(dry):
            return
        breaks = np.zeros((len(dry), self._vocab), np.bool_)
        for at, row in enumerate(dry):
            if row is None:
                breaks[at] = True  # so that it never has a match
            else:
                breaks[at, list(row.token_rules.breakers)] = True
        self._breaks = mx.array(breaks)
        lookback = [row.dry_penalty_last_n if row else 0 for row in dry]
        self._dry_windows = _column([_ALL if many < 0 else min(many, _ALL) for many in lookback])
        self._allowed = _column([row.dry_allowed_length if row else 0 for row in dry])
        self._bases = _column([row.dry_base if row else 1.0 for row in dry])
        self._multipliers = _column([row.dry_multiplier if row else 0.0 for row in dry])

    def _arrange_words(self, rows: Sequence[Decoding | None]) -> None:
        """Bad words of several tokens: all but their last one [P, K, L], and that [P, K]."""
        self._words: mx.array | None = None
        words = [
            [word for word in row.token_rules.banned if len(word) > 1] if row else []
            for row in rows
        ]
        most = max(map(len, words), default=0)
        if not most:
            return
        longest = max(len(word) - 1 for mine in words for word in mine)
        self._widen(longest)
        begun = np.full((len(words), most, longest), _NEVER, np.int32)
        ends, lengths = np.zeros((2, len(words), most), np.int32)
        for row, mine in enumerate(words):
            for at, word in enumerate(mine):
                begun[row, at] = _ANY
                begun[row, at, longest - len(word) + 1 :] = word[:-1]
                ends[row, at], lengths[row, at] = word[-1], len(word) - 1
        self._words, self._ends = mx.array(begun), mx.array(ends)
        self._lengths = mx.array(lengths)

    def check_integrity(self, rows: int) -> None:
        shapes = {self._tokens.shape, self._matches.shape}
        if len(self._rows) != rows or len(shapes) != 1 or self._tokens.shape[0] != rows:
            raise IntegrityError(f"a history of {len(self._rows)} rows, {shapes}, not {rows}")


def _column(values: Sequence[float]) -> mx.array:
    return mx.array(list(values))[:, None]


def repeats(tokens: np.ndarray, row: Decoding) -> np.ndarray:
    """How long what ends at each of a row's tokens equals its end; none goes across a breaker.

    In passes over what still matches: there are few but in a text that says one thing for ever.
    """
    matches = np.zeros(len(tokens), np.int32)
    breaks = np.flatnonzero(np.isin(tokens, [-1, *row.token_rules.breakers]))
    limit = len(tokens) - 1 - (breaks[-1] if len(breaks) else -1)
    left = np.arange(len(tokens) - 1)
    for back in range(min(int(limit), row.dry_allowed_length + LONGEST)):
        left = left[left >= back]
        left = left[tokens[left - back] == tokens[-1 - back]]
        if not len(left):
            break
        matches[left] += 1
    return matches
