"""Drafts from the prompt and the reply themselves: what followed the same tokens before.

It needs no weights, and is right wherever a reply repeats a text: edits of code, quotes, tool
results, lists of records. How often it is right is seen in every token that is said, whether it was
drafted or not: so nothing has to be tried out, and a reply that copies nothing costs no pass.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate
from operator import mul

from bushel.core import IntegrityError
from bushel.engine.drafts.acceptance import Acceptance
from bushel.engine.drafts.cost_profile import MOST_DRAFTS
from bushel.engine.drafts.drafter import KeptRound, before_end
from bushel.engine.drafts.ngram_index import NGRAMS, NOT_SAID, NgramIndex
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sequence import Sequence as Reply

# By how many tokens agree, how likely the next one is to follow, before a reply has shown it: as in
# code and prose that go on from their first halves. In edits it is 0.4, 0.6, 0.8, 0.93, 0.98, 1.0.
_LENGTHS = (2, 3, 4, 8, 16, 32)
_PRIORS = (0.35, 0.5, 0.6, 0.75, 0.85, 0.95)


class PromptLookup:
    """A `Drafter`. deepest: of the widths that the machine was measured with."""

    name = "lookup"
    wants_hidden = False

    def __init__(self, deepest: int) -> None:
        self.deepest = deepest
        self._rows: list[_LookupRow | None] = []

    def join(self, rows: Collection[PrefilledRow]) -> None:
        for ready in rows:
            sequence = ready.sequence
            self._rows.append(_LookupRow(sequence) if self._looks(sequence) else None)

    def _looks(self, sequence: Reply) -> bool:
        return sequence.decoding.speculate

    def leave(self, keep: Sequence[int]) -> None:
        self._rows = [self._rows[row] for row in keep]

    def chances(self, ahead: int = 0, most: int = MOST_DRAFTS) -> list[Sequence[float]]:
        # What is on the device may be the first drafts: those that follow them would then be.
        most = min(self.deepest, ahead + most)
        return [() if row is None else row.chances(most)[ahead:] for row in self._rows]

    def propose(self, lengths: Sequence[int]) -> list[list[int]]:
        rows = zip(self._rows, lengths, strict=True)
        return [[] if row is None or not depth else row.draft(depth) for row, depth in rows]

    def kept(self, round: KeptRound) -> None:
        for row in self._rows:
            if row is not None:
                row.read()

    def check_integrity(self) -> None:
        for row in self._rows:
            if row is not None:
                row.check_integrity()


class Predicted(PromptLookup):
    """The same, for rows whose request says what the reply may repeat, and for no others."""

    name = "prediction"

    def _looks(self, sequence: Reply) -> bool:
        return bool(sequence.request.prompt.prediction) and super()._looks(sequence)


class _LookupRow:
    def __init__(self, sequence: Reply) -> None:
        self._sequence = sequence
        self._text = NgramIndex(_begin(sequence))
        if sequence.request.prompt.prediction:
            self._text.follow(0)
        self._start = len(self._text.tokens)
        self._records = [Acceptance(prior) for prior in _PRIORS]
        self.read()

    def read(self) -> None:
        """What was said since; each token tells whether the lookup was right."""
        text = self._text
        for token in self._sequence.tokens[len(text.tokens) - self._start :]:
            if text.match is not None:
                right = text.tokens[text.match.at] == token
                self._records[_bucket(text.match.length)].count(int(right), not right)
            text.add(token)

    def chances(self, deepest: int) -> list[float]:
        self.read()
        match, most = self._text.match, min(deepest, self._sequence.draft_room)
        if match is None or most <= 0:
            return []
        most = len(self.draft(most))
        lengths = range(match.length, match.length + most)
        return [*accumulate((self._records[_bucket(length)].chance for length in lengths), mul)]

    def draft(self, depth: int) -> list[int]:
        return before_end(self._text.draft(depth), self._sequence)

    def check_integrity(self) -> None:
        self._text.check_integrity()
        said = len(self._text.tokens) - self._start
        if self._text.tokens[self._start :] != self._sequence.tokens[:said]:
            raise IntegrityError("a lookup of other tokens than the reply's")


def _begin(sequence: Reply) -> list[int]:
    """All that is there before the reply; what stands for images is never said.

    What the reply is thought to repeat comes first, and apart from the prompt.
    """
    prompt = sequence.request.prompt
    tokens = list(prompt.ids)
    for media in prompt.media:
        tokens[media.start : media.end] = [NOT_SAID] * (media.end - media.start)
    return [*prompt.prediction, NOT_SAID, *tokens] if prompt.prediction else tokens


def _bucket(length: int) -> int:
    return bisect_right(_LENGTHS, max(length, NGRAMS[-1])) - 1
