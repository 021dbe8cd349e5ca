"""The drafter `grammar`: tokens of constrained rows that the grammar leaves no choice about.

In a JSON reply keys, quotes and commas follow from its schema, and between them come the values. A
text that is forced may be cut into tokens in more than one way, so that even these are drafts; how
many are accepted is counted in every reply.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bushel.core import IntegrityError
from bushel.engine.drafts.acceptance import Acceptance, along
from bushel.engine.drafts.cost_profile import MOST_DRAFTS
from bushel.engine.drafts.drafter import KeptRound, before_end
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sequence import Sequence as Reply

# Before a reply has shown it: that it has a forced token in the cut that the tokenizer gives it.
_ACCEPTED = 0.9
# After a token that was free, before a reply has shown it: that something is forced, and how much.
_BEGINS, _USUAL = 0.3, 4


class GrammarDrafter:
    """A `Drafter`. deepest: of the widths that the machine was measured with."""

    name = "grammar"
    wants_hidden = False

    def __init__(self, deepest: int) -> None:
        self.deepest = deepest
        self._rows: list[_GrammarRow | None] = []

    def join(self, rows: Collection[PrefilledRow]) -> None:
        for ready in rows:
            reply = ready.sequence
            self._rows.append(None if reply.constrained is None else _GrammarRow(reply))

    def leave(self, keep: Sequence[int]) -> None:
        self._rows = [self._rows[row] for row in keep]

    def chances(self, ahead: int = 0, most: int = MOST_DRAFTS) -> list[Sequence[float]]:
        return [
            () if row is None else row.chances(ahead, self.deepest)[:most] for row in self._rows
        ]

    def propose(self, lengths: Sequence[int]) -> list[list[int]]:
        rows = zip(self._rows, lengths, strict=True)
        return [[] if row is None or not length else row.propose(length) for row, length in rows]

    def kept(self, round: KeptRound) -> None:
        for row, kept in zip(self._rows, round.kept, strict=True):
            if row is not None:
                row.count(kept - 1)

    def check_integrity(self) -> None:
        for row in self._rows:
            if row is not None and row.looked > len(row.reply.tokens):
                raise IntegrityError("a grammar that was asked about tokens that nobody said")


class _GrammarRow:
    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.looked = -1  # tokens of the reply when the grammar was asked last
        self._forced: list[int] = []  # what it said then
        self._begins = Acceptance(_BEGINS)
        self._drafted = 0  # of the round that is on its way

    @property
    def _acceptance(self) -> Acceptance:
        return self.reply.accepted_from(GrammarDrafter.name, _ACCEPTED)

    def chances(self, ahead: int, deepest: int) -> list[float]:
        most = min(deepest, self.reply.draft_room)
        if most <= 0 or self.reply.done:
            return []
        forced, said = self._ask(deepest + 1, ahead), len(self.reply.tokens)
        if forced or not ahead:
            # What is on the device is then the first of them.
            return along(self._acceptance.retried(said), min(most, len(forced[ahead:])))
        begins = self._begins.retried(said)
        following = along(self._acceptance.retried(said), min(most, _USUAL))
        return [begins * chance for chance in following]

    def propose(self, length: int) -> list[int]:
        draft = self._ask(length, 0)[:length]
        self._drafted = len(draft)
        return draft

    def count(self, accepted: int) -> None:
        """So many tokens of the round's draft were accepted, whoever's draft it was."""
        if self._drafted:
            own = min(self._drafted, accepted)
            self._acceptance.count(own, own < self._drafted, len(self.reply.tokens))
        self._drafted = 0

    def _ask(self, most: int, ahead: int) -> list[int]:
        """What can only come behind all that has been read."""
        said = len(self.reply.tokens)
        if self.looked != said:
            constrained = self.reply.constrained
            assert constrained is not None
            self._forced = before_end(constrained.forced_ahead(most), self.reply)
            self.looked = said
            if not ahead:
                self._begins.count(int(bool(self._forced)), not self._forced, said)
        return self._forced
