"""Drafts of a model's own prediction head (MTP).

    text       … x3   x4   x5        x5: the newest token, not run yet
    body       … h3   h4             hidden states of passes
    head       … g3   g4             of a hidden state and the token after it: h4 and x5 give g4
    drafts               x6'  x7'    from g4 the first; with it, as if it were h5, the next

What passes give is kept until somebody wants drafts, and then read by the head in one pass of all
rows, the last of which is the first draft; before it what prompts gave (`head_context`). Steps in
which nobody drafts cost nothing that way; if there are many, those that lie back furthest are
forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from operator import mul
from typing import NamedTuple

import mlx.core as mx

from bushel.core import IntegrityError
from bushel.engine.drafts.acceptance import Acceptance
from bushel.engine.drafts.cost_profile import MOST_DRAFTS, CostProfile, Drafting
from bushel.engine.drafts.draft_length import draft_lengths
from bushel.engine.drafts.drafter import DeviceDrafts, Drafts, KeptRound
from bushel.engine.drafts.head_context import HeadContext
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sequence import Sequence as Reply
from bushel.models import Model
from bushel.models.mtp import HeadKVCache

# That a draft is accepted if those before it are, at the first depth and at others. Published for
# heads of large models: 76, 62, 51 and 42 % of drafts are accepted at depths 1 to 4, so 82 % of
# those that may be. Heads are taught the first: bushel:tiny's is nearly always right there, and
# every other time at the next.
_PRIORS = (0.8, 0.75)
_CONSTRAINED = 0.5  # of rows that are held to a grammar, which no head knows
_UNREAD = 64  # hidden states of a row that are kept for the head


class _Unread(NamedTuple):
    """Hidden states that the head has not read."""

    hidden: mx.array  # [B, T, D]
    columns: list[list[int]]  # by row, which of T are its own, in order


@dataclass(eq=False)
class _HeadRow:
    sequence: Reply
    delta: int  # of rotary positions against tokens
    position: int  # tokens that have been run
    ready: bool  # the head has read all of them
    context: HeadContext | None  # what it has to read before all else
    drafted: int = 0  # drafts of the round that is on its way
    records: list[Acceptance] = field(default_factory=list)  # by depth, of the sequence's own
    chances: list[float] | None = None  # of its next drafts, until it has said so many tokens
    until: float = 0.0

    @property
    def wants(self) -> bool:
        return self.sequence.decoding.speculate and self.sequence.uses_head

    @property
    def known(self) -> int:
        """Tokens of its prompt, and of its reply that have been read."""
        return len(self.sequence.request.prompt.ids) + len(self.sequence.tokens)

    def tokens(self, start: int, count: int) -> list[int]:
        """Those from there on; where there are fewer, the last again and again."""
        prompt, said = self.sequence.request.prompt.ids, self.sequence.tokens
        asked = prompt[start : start + count]
        at = start - len(prompt) + len(asked)
        tokens = [*asked, *said[at : at + count - len(asked)]]
        return tokens + [said[-1] if said else prompt[-1]] * (count - len(tokens))

    def record(self, depth: int) -> Acceptance:
        """Heads are taught to look one token ahead: one depth says little of the others."""
        while len(self.records) < depth:
            at = len(self.records) + 1
            prior = _prior(at, constrained=self.sequence.constrained is not None)
            self.records.append(self.sequence.accepted_from(f"{MTPDrafter.name} {at}", prior))
        return self.records[depth - 1]


class MTPDrafter:
    """A `Drafter` that reads hidden states. deepest: of the widths that the machine was measured
    with.
    """

    name = "mtp"

    def __init__(self, model: Model, deepest: int) -> None:
        assert model.mtp is not None
        self.deepest = deepest
        self._head = model.mtp
        self._cache = HeadKVCache()
        self._rows: list[_HeadRow] = []
        self._unread: list[_Unread] = []
        self._ahead: mx.array | None = None  # [B, 1, D]: g of each row that is ready

    @property
    def wants_hidden(self) -> bool:
        return any(row.wants for row in self._rows)

    def join(self, rows: Collection[PrefilledRow]) -> None:
        contexts = [HeadContext() if row.context is None else row.context for row in rows]
        before, count = len(self._rows), len(rows)
        read = [HeadContext() if context.unread else context for context in contexts]
        self._cache.join([context.cache for context in read])
        self._ahead = _stacked(self._ahead, before, [context.ahead for context in read])
        self._unread = [
            _Unread(
                mx.pad(unread.hidden, [(0, count), (0, 0), (0, 0)]),
                [*unread.columns, *([] for _ in rows)],
            )
            for unread in self._gathered()
        ]
        for row, context in zip(rows, contexts, strict=True):
            ready = context.ahead is not None and not context.unread
            waiting = context if context.unread else None
            place = row.prompt.delta, row.position
            self._rows.append(_HeadRow(row.sequence, *place, ready, waiting))
        self._settle()

    def leave(self, keep: Sequence[int]) -> None:
        unread = self._gathered()
        self._rows = [self._rows[row] for row in keep]
        self._cache.leave(keep)
        if not keep:
            self._unread, self._ahead = [], None
            return
        index = mx.array(list(keep))
        self._unread = [
            _Unread(each.hidden[index], [each.columns[row] for row in keep]) for each in unread
        ]
        self._ahead = None if self._ahead is None else self._ahead[index]
        self._settle()

    def chances(self, ahead: int = 0, most: int = MOST_DRAFTS) -> list[Sequence[float]]:
        # What is on the device is read before drafts are made: it changes nothing.
        unread = [any(each.columns[row] for each in self._unread) for row in range(len(self._rows))]
        most = min(self.deepest, most)
        return [
            self._chances(row, most) if row.wants and (row.ready or new or row.context) else ()
            for row, new in zip(self._rows, unread, strict=True)
        ]

    def _chances(self, row: _HeadRow, most: int) -> list[float]:
        said, most = len(row.sequence.tokens), min(most, row.sequence.draft_room)
        if row.chances is None or said >= row.until or len(row.chances) != most:
            records = [row.record(depth) for depth in range(1, most + 1)]
            row.chances = [*accumulate((record.retried(said) for record in records), mul)]
            row.until = min((record.due for record in records if record.due > said), default=inf)
        return row.chances

    def propose(self, lengths: Sequence[int]) -> Drafts:
        longest = max(lengths, default=0)
        if not longest:
            return [[] for _ in lengths]
        self._read()
        for row, length in zip(self._rows, lengths, strict=True):
            row.drafted = length if row.ready else 0
        return self._draft(longest)

    def kept(self, round: KeptRound) -> None:
        for row, kept in zip(self._rows, round.kept, strict=True):
            # What a grammar refused was rejected, too.
            self._count(row, row.drafted, kept - 1)
            row.position += kept
            row.ready, row.drafted = False, 0
        if round.hidden is None:
            self._unread = []
            return
        self._unread.append(_Unread(round.hidden, [list(range(kept)) for kept in round.kept]))
        if len(self._unread) > _UNREAD:
            self._unread = self._gathered()
            mx.async_eval([each.hidden for each in self._unread])

    def _count(self, row: _HeadRow, drafted: int, accepted: int) -> None:
        row.chances = None if drafted else row.chances
        for depth in range(1, min(accepted + 1, drafted) + 1):
            right = depth <= accepted
            row.record(depth).count(int(right), not right, len(row.sequence.tokens))

    def put_aside(self, row: int) -> HeadContext:
        """What the head knows of a row, which stays so far."""
        self._read()
        ahead = self._ahead if self._rows[row].ready else None
        return HeadContext(self._cache.rows([row]), None if ahead is None else ahead[row : row + 1])

    def _read(self) -> None:
        """Let the head read what passes have given, as far as the tokens after it are known."""
        self._read_contexts()
        if not self._unread:
            return
        ((hidden, columns),) = self._gathered()
        firsts = [row.position - len(own) for row, own in zip(self._rows, columns, strict=True)]
        counts = [
            max(0, min(len(own), row.known - first - 1))
            for row, own, first in zip(self._rows, columns, firsts, strict=True)
        ]
        rest = [own[count:] for own, count in zip(columns, counts, strict=True)]
        self._unread = [_Unread(hidden, rest)] if any(rest) else []
        if width := max(counts):
            self._follow(_columns(hidden, columns, width), firsts, counts)
        for row, count, left in zip(self._rows, counts, rest, strict=True):
            row.ready = (row.ready or count > 0) and not left

    def _read_contexts(self) -> None:
        """What was there before rows joined."""
        contexts = {at: row.context for at, row in enumerate(self._rows) if row.context is not None}
        if not contexts:
            return
        for context in contexts.values():
            context.read(self._head)
        self._cache.replace({at: context.cache for at, context in contexts.items()})
        self._ahead = _stacked(
            None,
            0,
            [
                contexts[at].ahead
                if at in contexts
                else (None if self._ahead is None else self._ahead[at : at + 1])
                for at in range(len(self._rows))
            ],
        )
        for at in contexts:
            row = self._rows[at]
            row.context, row.ready = None, not any(each.columns[at] for each in self._unread)

    def _follow(self, hidden: mx.array, firsts: list[int], counts: list[int]) -> None:
        """Of each row so many hidden states, from its token firsts[i] on."""
        # Rows that have fewer than others repeat something behind their end.
        following = [
            row.tokens(first + 1, hidden.shape[1])
            for row, first in zip(self._rows, firsts, strict=True)
        ]
        positions = [first + row.delta for first, row in zip(firsts, self._rows, strict=True)]
        lengths = self._cache.lengths
        read = self._head(hidden, mx.array(following), positions, lengths, self._cache)
        last = mx.array([[[max(count, 1) - 1]] for count in counts])
        ahead = mx.take_along_axis(read, last, axis=1)
        if self._ahead is not None and not all(counts):
            ahead = mx.where(mx.array(counts)[:, None, None] > 0, ahead, self._ahead)
        self._ahead = ahead
        self._cache.lengths = [
            length + count for length, count in zip(lengths, counts, strict=True)
        ]

    def _draft(self, count: int) -> Drafts:
        """So many tokens for each row; what the head keeps on the way is written over later."""
        hidden = self._ahead
        if hidden is None:
            return [[] for _ in self._rows]
        drafts = [mx.argmax(self._head.logits(hidden), axis=-1)]
        for depth in range(count - 1):
            positions = [row.position + row.delta + depth for row in self._rows]
            starts = [length + depth for length in self._cache.lengths]
            hidden = self._head(hidden, drafts[-1], positions, starts, self._cache)
            drafts.append(mx.argmax(self._head.logits(hidden), axis=-1))
        tokens = mx.concatenate(drafts, axis=1)
        mx.async_eval(tokens)
        return DeviceDrafts(tokens, [row.drafted for row in self._rows])

    def _gathered(self) -> list[_Unread]:
        """All that is unread as one, or nothing; of each row the newest."""
        if len(self._unread) <= 1:
            return self._unread
        widths = accumulate((each.hidden.shape[1] for each in self._unread), initial=0)
        columns: list[list[int]] = [[] for _ in self._rows]
        for before, each in zip(widths, self._unread, strict=False):
            for own, more in zip(columns, each.columns, strict=True):
                own += [before + column for column in more]
        hidden = mx.concatenate([each.hidden for each in self._unread], axis=1)
        columns = [own[-_UNREAD:] for own in columns]
        width = max(1, *map(len, columns))
        return [
            _Unread(_columns(hidden, columns, width), [list(range(len(own))) for own in columns])
        ]

    def _settle(self) -> None:
        """Nobody may draft for long, and what rows have left behind would be held until then."""
        ahead = [] if self._ahead is None else [self._ahead]
        mx.async_eval([*self._cache.arrays, *ahead, *(each.hidden for each in self._unread)])

    def check_integrity(self) -> None:
        self._cache.check_integrity()
        sizes = {len(self._rows), len(self._cache), *(len(each.columns) for each in self._unread)}
        if len(sizes) != 1:
            raise IntegrityError(f"a head that drafts for {sizes} rows")
        for row in self._rows:
            newest = len(row.sequence.request.prompt.ids) + row.sequence.launched - 1
            if row.position != newest:
                raise IntegrityError(f"a head at {row.position} whose row is at {newest}")


def _prior(depth: int, *, constrained: bool) -> float:
    return _CONSTRAINED if constrained else _PRIORS[depth > 1]


def head_may_pay(profile: CostProfile, drafting: Drafting, *, constrained: bool) -> bool:
    """Whether a row would ever draft before anything is known of it, with any number of others.

    drafting: what the head takes. constrained: the row is held to a grammar.
    """
    priors = (_prior(1 + at, constrained=constrained) for at in range(profile.deepest))
    chances = [*accumulate(priors, mul)]
    return any(
        any(draft_lengths([chances] * (1 + fewer), replace(profile, drafting=seconds)))
        for fewer, seconds in enumerate(drafting)
    )


def _columns(hidden: mx.array, columns: Sequence[Sequence[int]], width: int) -> mx.array:
    """Of each row its own columns [B, width, D], with others behind them where it has fewer."""
    if width == hidden.shape[1] and all(own == [*range(len(own))] for own in columns):
        return hidden
    index = [[*own[:width], *[0] * (width - len(own))] for own in columns]
    return mx.take_along_axis(hidden, mx.array(index)[:, :, None], axis=1)


def _stacked(
    held: mx.array | None, rows: int, others: Sequence[mx.array | None]
) -> mx.array | None:
    """[B, 1, D] of rows that are here and of those that come; zeros where there is nothing."""
    there = [array for array in (held, *others) if array is not None]
    if not there:
        return None
    nothing = mx.zeros((1, *there[0].shape[1:]), there[0].dtype)
    first = [nothing] * rows if held is None else [held]
    return mx.concatenate([*first, *(nothing if other is None else other for other in others)])
