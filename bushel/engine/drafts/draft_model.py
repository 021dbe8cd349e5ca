"""Drafts of a second, smaller model of the same vocabulary.

    text     x0 x1 x2 x3 x4 | x5        x5: the newest token, which the large model has not run
    draft    x0 x1 x2                   its rows lie behind by what was said since they drafted
    propose           x3 x4   x5 d6 d7  one pass of what was said, one step for each further draft
    then     x0 x1 x2 x3 x4   x5        and back: what was said stays, and no draft

It reads every prompt by itself, a piece with each step of the batch, and drafts for a row when it
has come to its end. Pictures it does not see: their rows take no drafts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from bushel.cache import BatchState
from bushel.cache.drafts import no_drafts
from bushel.core import IntegrityError, ModelError
from bushel.engine.drafts.acceptance import along
from bushel.engine.drafts.cost_profile import MOST_DRAFTS
from bushel.engine.drafts.drafter import KeptRound, before_end
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sequence import Sequence as Reply
from bushel.models import Model, State

_PRIOR = 0.7
_PIECE = 256  # tokens of a prompt that are run at once
WIDEST = 32  # tokens of each row in a pass of what was said


def require_draft_model(model: Model, draft: Model) -> None:
    """ModelError if a model cannot draft for another."""
    if draft.encodes:
        raise ModelError(f"{draft.name} cannot draft for {model.name}: it is an encoder.")
    if draft.tokenizer.hf.get_vocab() != model.tokenizer.hf.get_vocab():
        raise ModelError(
            f"{draft.name} cannot draft for {model.name}: they have different vocabularies."
        )
    if why := no_drafts(draft.make_state(), draft.network):
        raise ModelError(f"{draft.name} cannot draft for {model.name}: {why}.")


@dataclass(eq=False)
class _DraftRow:
    sequence: Reply
    state: State = field(default_factory=list)  # while its prompt is read
    done: int = 0  # tokens of it that have been
    first: int = 0  # its first draft, when all that was said has been run
    drafted: int = 0  # drafts of the round that is on its way

    @property
    def known(self) -> int:
        """Tokens of its prompt, and of its reply that have been read."""
        return len(self.sequence.request.prompt.ids) + len(self.sequence.tokens)

    def tokens(self, start: int, end: int) -> list[int]:
        prompt, said = self.sequence.request.prompt.ids, self.sequence.tokens
        length = len(prompt)
        return [*prompt[start:end], *said[max(0, start - length) : max(0, end - length)]]


class DraftModel:
    """A `Drafter`. deepest: of the widths that the machine was measured with."""

    name = "draft"
    wants_hidden = False

    def __init__(self, model: Model, draft: Model, deepest: int) -> None:
        self.deepest = deepest
        self._draft = draft
        self._vocab = min(model.vocab, draft.vocab)
        self._rows: list[_DraftRow] = []
        self._reading: list[_DraftRow] = []  # whose prompts have not been read to the end
        self._batch: list[_DraftRow] = []  # whose have
        self._states = self._new_states()

    def _new_states(self) -> BatchState:
        return BatchState(self._draft.make_state, drafts=True)

    def join(self, rows: Collection[PrefilledRow]) -> None:
        for ready in rows:
            sequence = ready.sequence
            reads = sequence.decoding.speculate and not sequence.request.prompt.has_media
            row = _DraftRow(sequence)
            self._rows.append(row)
            if reads:
                row.state = self._draft.make_state()
                self._reading.append(row)
                self._read_piece(row)

    def leave(self, keep: Sequence[int]) -> None:
        self._rows = [self._rows[row] for row in keep]
        staying = set(map(id, self._rows))
        self._reading = [row for row in self._reading if id(row) in staying]
        here = [at for at, row in enumerate(self._batch) if id(row) in staying]
        self._batch = [self._batch[at] for at in here]
        self._states.leave(here)
        if not here:
            self._states = self._new_states()

    def chances(self, ahead: int = 0, most: int = MOST_DRAFTS) -> list[Sequence[float]]:
        # What is on the device is read before drafts are made: it changes nothing.
        ready = set(map(id, self._batch))
        most = min(self.deepest, most)
        return [self._chances(row, most) if id(row) in ready else () for row in self._rows]

    def _has_room(self, row: _DraftRow) -> bool:
        """Whether its text ends before the draft model's context does."""
        return self._draft.context is None or row.known < self._draft.context

    def _chances(self, row: _DraftRow, most: int) -> list[float]:
        most = min(most, row.sequence.draft_room)
        if self._draft.context is not None:
            most = min(most, self._draft.context - row.known)
        record = row.sequence.accepted_from(self.name, _PRIOR)
        return along(record.retried(len(row.sequence.tokens)), most)

    def propose(self, lengths: Sequence[int]) -> list[list[int]]:
        wanted = {id(row): length for row, length in zip(self._rows, lengths, strict=True)}
        longest = max((wanted[id(row)] for row in self._batch), default=0)
        drafted = self._drafted(longest) if longest else []
        found = {id(row): tokens for row, tokens in zip(self._batch, drafted, strict=False)}
        proposed = [
            before_end(found.get(id(row), [])[:length], row.sequence)
            for row, length in zip(self._rows, lengths, strict=True)
        ]
        for row, tokens in zip(self._rows, proposed, strict=True):
            row.drafted = len(tokens)
        return proposed

    def _drafted(self, count: int) -> list[list[int]]:
        """So many tokens for each row of the batch."""
        drafts = [self._first()]
        mark = self._states.mark()
        for _ in range(count - 1):
            logits = self._draft.forward(drafts[-1], self._states.positions, self._states.layers)
            self._states.advance([1] * len(self._batch))
            drafts.append(self._best(logits))
        self._states.go_back(mark)
        tokens: Any = mx.concatenate(drafts, axis=1).tolist()
        for row, (first, *_) in zip(self._batch, tokens, strict=True):
            row.first = first
        return list(tokens)

    def _first(self) -> mx.array:
        """Run what rows have said since they last drafted, and the newest token; gives what the
        draft model would say then: [B, 1].
        """
        best = mx.array([[row.first] for row in self._batch])
        while any(behind := self._behind()):
            counts = [min(count, WIDEST) for count in behind]
            width, starts = max(counts), list(self._states.positions)
            # Rows that have fewer than others repeat something behind their end, and forget it.
            tokens = [
                [*said, *[0] * (width - len(said))]
                for row, start, count in zip(self._batch, starts, counts, strict=True)
                for said in [row.tokens(start, start + count)]
            ]
            self._states.begin_draft(counts)
            try:
                logits = self._draft.forward(mx.array(tokens), starts, self._states.layers)
            finally:
                self._states.draft_ran()
            self._states.end_draft(counts)
            last = mx.array([[[max(count, 1) - 1]] for count in counts])
            found = self._best(mx.take_along_axis(logits, last, axis=1))
            best = mx.where(mx.array(counts)[:, None] > 0, found, best)
        return best

    def _behind(self) -> list[int]:
        """Tokens of each row that have not been run."""
        pairs = zip(self._batch, self._states.positions, strict=True)
        return [row.known - position for row, position in pairs]

    def _best(self, logits: mx.array) -> mx.array:
        """Of tokens that both models know."""
        return mx.argmax(logits[..., : self._vocab], axis=-1)

    def kept(self, round: KeptRound) -> None:
        for row, kept in zip(self._rows, round.kept, strict=True):
            if row.drafted:  # what a grammar refused was rejected, too
                accepted = min(kept - 1, row.drafted)
                record = row.sequence.accepted_from(self.name, _PRIOR)
                record.count(accepted, accepted < row.drafted, len(row.sequence.tokens))
            row.drafted = 0
        for row in self._reading[:1]:
            self._read_piece(row)

    def _read_piece(self, row: _DraftRow) -> None:
        """Of its text, all but the newest token; what comes to the end of that joins the others."""
        if not self._has_room(row):
            self._reading.remove(row)
            row.state = []
            return
        end = min(row.done + _PIECE, row.known - 1)
        if end > row.done:
            tokens = mx.array([row.tokens(row.done, end)])
            self._draft.forward(tokens, [row.done], row.state)
            mx.async_eval([layer.state for layer in row.state])
            row.done = end
        if row.done and row.done >= row.known - 1:
            self._states.join(row.state, row.done)
            self._batch.append(row)
            self._reading.remove(row)
            row.state = []

    def check_integrity(self) -> None:
        self._states.check_integrity()
        if len(self._states) != len(self._batch):
            raise IntegrityError(f"{len(self._states)} states for {len(self._batch)} rows")
        here = set(map(id, self._rows))
        if any(id(row) not in here for row in (*self._batch, *self._reading)):
            raise IntegrityError("a draft model reads a row that has left")
        for row, position in zip(self._batch, self._states.positions, strict=True):
            if not 0 < position <= row.known:
                raise IntegrityError(f"a draft model at {position} of {row.known} tokens")
