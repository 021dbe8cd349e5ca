"""The rows that decode together, one step ahead of what has been read.

    forward, choose   build and start step t+1 from step t's tokens, still on the device
    Step              what step t will have chosen; reading it waits for step t only

Where rows are constrained, another thread reads step t between the two halves of a launch: while
the forward pass runs, and before tokens are chosen (`constraints.mask_thread`).

A row that ends was already part of the step in flight: that step's token for it is ignored.

Where rows have drafts, a round takes the place of a step: one pass over each row's newest token
and its draft (`verify`), a token chosen at every place of it (`choose_along`), and when these have
been read, all state goes back to what each row keeps (`finish`). A round begins when everything
before it has been read, and ends before anything after it begins.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Items
from typing import NamedTuple

import mlx.core as mx

from bushel.cache import BatchState
from bushel.core import IntegrityError, TokenLogprob
from bushel.engine.constraints.constraint import ConstrainedRow
from bushel.engine.drafts.batch_drafts import BatchDrafts
from bushel.engine.drafts.drafter import DeviceDrafts, Drafts, KeptRound, counts_of, read_drafts
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sampling.chooser import Masks
from bushel.engine.sampling.sampler import Sampled, SampledDraft, Sampler, listed
from bushel.engine.sequence import Phase, Sequence
from bushel.models import Model, Prompt
from bushel.models.device import ON_CPU

# Bookkeeping arrays that nothing reads form chains of one node per step; 64 of them are free.
_SETTLE_EVERY = 64
# MLX's CPU build lets the host be only some dozens of operations ahead of the device. A choice for
# rows of different settings is more than that, and small ones: with those last, the device has done
# them all before the host has built the next forward pass, and waits for it.
LATE = ON_CPU


class Step(NamedTuple):
    sequences: tuple[Sequence, ...]
    sampled: Sampled
    twin: mx.array | None  # its tokens, where rows are constrained; no two threads touch one array

    def read(self) -> list[tuple[Sequence, tuple[int, ...], tuple[TokenLogprob, ...]]]:
        """What it added to each row, with log-probabilities where they were asked for."""
        tokens, logprobs = self.sampled.read([sequence.decoding for sequence in self.sequences])
        return [
            (sequence, (token,), () if logprob is None else (logprob,))
            for sequence, token, logprob in zip(self.sequences, tokens, logprobs, strict=True)
        ]

    def tokens_for_masks(self) -> dict[Sequence, tuple[int, ...]]:
        """What it chose, for another thread than the engine's; waits for the device."""
        tokens = [] if self.twin is None else listed(self.twin)
        return {row: (token,) for row, token in zip(self.sequences, tokens, strict=False)}


class Run(NamedTuple):
    """A forward pass on its way, and what led to it."""

    inputs: mx.array  # [B, 1]
    counts: list[int]  # of tokens by which each row goes on
    logits: mx.array  # [B, 1, V]
    before: list[mx.array]  # of the choice that led to it, if that was not started
    early: list[mx.array]  # what it then computes long before its logits

    def begin(self) -> None:
        """Start what led to it, so that it can be read, and about a quarter of itself.

        Apart from the rest: MLX looks through all of a graph before it starts any of it, and what
        is evaluated together can only be waited for together.
        """
        if self.before:
            mx.async_eval(*self.before, *self.early)

    def go_on(self) -> None:
        mx.async_eval(self.logits)


class Verify(NamedTuple):
    """A forward pass over drafts on its way."""

    sequences: tuple[Sequence, ...]
    drafts: Drafts
    inputs: mx.array  # [B, W]: the newest token, the draft, and whatever fills the row up
    logits: mx.array  # [B, W, V]
    hidden: mx.array | None  # [B, W, D], where a drafter wants them

    @property
    def counts(self) -> list[int]:
        """Inputs of each row that are its own."""
        return [1 + count for count in counts_of(self.drafts)]


class Round(NamedTuple):
    """A verified draft, to be read and finished."""

    verify: Verify
    sampled: SampledDraft

    def read(
        self,
    ) -> list[tuple[Sequence, list[int], tuple[int, ...], tuple[TokenLogprob, ...]]]:
        """Every row's draft, and what the round adds to it; waits for the device.

        A draft is kept while it is what was chosen in its place.
        """
        settings = [sequence.decoding for sequence in self.verify.sequences]
        tokens, logprobs = self.sampled.read(settings)
        added = []
        drafts = read_drafts(self.verify.drafts)
        rows = zip(self.verify.sequences, drafts, tokens, logprobs, strict=True)
        for sequence, draft, chosen, told in rows:
            count = 1 + accepted(draft, chosen)
            added.append((sequence, draft, tuple(chosen[:count]), tuple(told[:count])))
        return added


def accepted(draft: Items[int], chosen: Items[int]) -> int:
    """How many tokens of a draft are what was chosen in their places."""
    places = enumerate(zip(draft, chosen, strict=False))
    return next((at for at, (guess, token) in places if guess != token), len(draft))


class DecodeBatch:
    def __init__(self, model: Model, drafts: BatchDrafts | None = None):
        """drafts: who guesses what its rows say next, if anybody does."""
        self._model, self.drafts = model, drafts
        self.rows = BatchState(model.make_state, model.pages, drafts=drafts is not None)
        self.sequences: list[Sequence] = []
        self._sampler = Sampler(model.vocab)
        self._deltas: list[int] = []
        self._constrained = False  # whether any row is
        self._next: mx.array | None = None  # [B, 1] tokens to run
        self._late: list[mx.array] = []  # of the last choice, if it is to start later
        self._launches = 0

    def __len__(self) -> int:
        return len(self.sequences)

    def join(self, rows: Collection[PrefilledRow]) -> None:
        """All of them at once: the rows that are here move once."""
        self.rows.join_all([(ready.take_state(self._model), ready.position) for ready in rows])
        tokens = mx.array([[ready.token] for ready in rows], dtype=mx.uint32)
        self._next = tokens if self._next is None else mx.concatenate([self._next, tokens])
        for ready in rows:
            sequence = ready.sequence
            self._sampler.join(sequence.decoding, ready.prompt.ids, sequence.tokens)
            self._deltas.append(ready.prompt.delta)
            self.sequences.append(sequence)
            self._constrained = self._constrained or sequence.constrained is not None
            sequence.launched = len(sequence.tokens)
            sequence.phase = Phase.DECODE
        if self.drafts is not None:
            self.drafts.join(rows)

    def leave(self, gone: Collection[Sequence]) -> None:
        keep = [row for row, sequence in enumerate(self.sequences) if sequence not in gone]
        if len(keep) == len(self.sequences):
            return
        self.rows.leave(keep)
        self._sampler.leave(keep)
        if self.drafts is not None:
            self.drafts.leave(keep)
        self._deltas = [self._deltas[row] for row in keep]
        self.sequences = [self.sequences[row] for row in keep]
        self._constrained = any(sequence.constrained is not None for sequence in self.sequences)
        if not keep:
            if self._late:  # nothing follows it, and another thread may read it
                mx.async_eval(*self._late)
            self._next, self._late = None, []
        elif self._next is not None:
            self._next = self._next[mx.array(keep)]

    def put_aside(self, row: int) -> PrefilledRow:
        """What a row needs to go on later, when its newest token has been read; it stays so far."""
        sequence, snapshot = self.sequences[row], self.rows.snapshot(row)
        prompt = Prompt(sequence.request.prompt.ids, delta=self._deltas[row])
        context = None if self.drafts is None else self.drafts.put_aside(row)
        return PrefilledRow(sequence, prompt, snapshot.position, None, snapshot, context)

    def ended(self) -> list[tuple[int, Sequence]]:
        """Rows that have ended or need no further step."""
        rows = enumerate(self.sequences)
        done = Phase.DONE
        return [
            (row, sequence)
            for row, sequence in rows
            if sequence.phase is done or sequence.launched >= sequence.limit
        ]

    @property
    def constraints(self) -> list[ConstrainedRow | None]:
        """By row, of those whose next token may be held to something; empty if none is."""
        if not self._constrained:
            return []
        constraints = [_held(sequence) for sequence in self.sequences]
        return constraints if any(constraints) else []

    @property
    def constraints_along(self) -> list[ConstrainedRow | None]:
        """By row, whatever it is held to, since a draft may come to where that matters."""
        if not self._constrained:
            return []
        return [None if row.done else row.constrained for row in self.sequences]

    def too_slow(self) -> tuple[int, ...]:
        """Rows whose constraints have cost the others too much time."""
        if not self._constrained:
            return ()
        rows = ((sequence.row.id, sequence.constrained) for sequence in self.sequences)
        return tuple(id for id, constrained in rows if constrained and constrained.too_slow)

    def forward(self) -> Run:
        """Run the newest token of every row; `choose` must follow."""
        assert self._next is not None
        inputs = self._next
        self.rows.reserve(inputs.shape[1])
        logits, hidden = self._run(inputs)
        counts = [inputs.shape[1]] * len(self.sequences)
        self.rows.advance(counts)
        if self.drafts is not None:
            self.drafts.kept(KeptRound(counts, hidden))
        before, self._late = self._late, []
        return Run(inputs, counts, logits, before, self.rows.early() if before else [])

    def _run(self, inputs: mx.array) -> tuple[mx.array, mx.array | None]:
        """Logits, and hidden states where a drafter wants them."""
        run = (inputs, self._where(), self.rows.layers)
        if self.drafts is not None and self.drafts.wants_hidden:
            return self._model.forward_with_hidden(*run)
        return self._model.forward(*run), None

    def _where(self) -> list[int]:
        """The position of every row's next input."""
        pairs = zip(self.rows.positions, self._deltas, strict=True)
        return [index + delta for index, delta in pairs]

    def choose(self, run: Run, masks: Masks | None = None, *, late: bool = False) -> Step:
        """Choose every row's token; late: not before the next run starts, or someone reads them."""
        indices = [sequence.launched for sequence in self.sequences]
        sampled = self._sampler.sample(
            run.logits, run.inputs, indices, self.rows.positions, masks=masks
        )
        self._launches += 1
        settle = self.rows.settle() if self._launches % _SETTLE_EVERY == 0 else []
        twin = mx.contiguous(sampled.tokens) if self._constrained else None
        arrays = [*sampled.arrays(), *settle, *([] if twin is None else [twin])]
        if late:
            self._late = arrays
        else:
            mx.async_eval(*run.before, *arrays)
        self._next = sampled.tokens
        for sequence, count in zip(self.sequences, run.counts, strict=True):
            sequence.launched += count
        return Step(tuple(self.sequences), sampled, twin)

    def verify(self, drafts: Drafts) -> Verify:
        """Run the newest token of every row, and its draft; all that it said has been read."""
        assert self._next is not None
        counts = counts_of(drafts)
        width = max(counts)
        # What fills a row up is run and forgotten, like a draft that does not hold.
        if isinstance(drafts, DeviceDrafts):
            guesses = drafts.tokens[:, :width]
        else:
            guesses = mx.array([[*draft, *[0] * (width - len(draft))] for draft in drafts])
        inputs = mx.concatenate([self._next, guesses.astype(self._next.dtype)], axis=1)
        self._late = []
        self.rows.reserve(1 + width)
        self.rows.begin_draft([1 + count for count in counts])
        try:
            logits, hidden = self._run(inputs)
        finally:
            self.rows.draft_ran()
        return Verify(tuple(self.sequences), drafts, inputs, logits, hidden)

    def choose_along(self, verify: Verify, masks: Masks | None = None) -> Round:
        """Choose a token at every place of what was run."""
        indices = [sequence.launched for sequence in self.sequences]
        positions = [position + 1 for position in self.rows.positions]
        sampled = self._sampler.sample_along(
            verify.logits, verify.inputs, verify.counts, indices, positions, masks=masks
        )
        mx.async_eval(*sampled.arrays(), *([] if verify.hidden is None else [verify.hidden]))
        return Round(verify, sampled)

    def finish(self, verify: Verify, kept: Items[int]) -> None:
        """Go on from where each row has kept so many of its inputs, and said as many tokens."""
        self.rows.end_draft(kept)
        self._sampler.keep(kept)
        # A row that ended before its first token, as its mask could not be made, leaves at once.
        newest = [[sequence.tokens[-1] if sequence.tokens else 0] for sequence in self.sequences]
        self._next = mx.array(newest, dtype=mx.uint32)
        for sequence, count in zip(self.sequences, kept, strict=True):
            sequence.launched += count
        if self.drafts is not None:
            self.drafts.kept(KeptRound(kept, verify.hidden))

    def check_integrity(self) -> None:
        self.rows.check_integrity()
        self._sampler.check_integrity()
        if self.drafts is not None:
            self.drafts.check_integrity()
        sizes = {len(self.rows), len(self.sequences), len(self._deltas), len(self._sampler.rows)}
        if len(sizes) != 1 or (self._next is not None) != bool(self.sequences):
            raise IntegrityError(f"a decode batch of {sizes} rows")
        for sequence, position in zip(self.sequences, self.rows.positions, strict=True):
            run = len(sequence.request.prompt.ids) - 1 + sequence.launched
            if position != run:
                raise IntegrityError(f"a row at {position} whose sequence has run {run}")
            if sequence.constrained is not None:
                sequence.constrained.check_integrity(sequence.tokens)


def _held(sequence: Sequence) -> ConstrainedRow | None:
    """What its next token is held to, if it may be."""
    constrained = sequence.constrained
    if constrained is None or not constrained.holds(sequence.launched):
        return None
    return constrained
