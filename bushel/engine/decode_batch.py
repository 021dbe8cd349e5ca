"""The rows that decode together, one step ahead of what has been read.

    forward, choose   build and start step t+1 from step t's tokens, still on the device
    Step              what step t will have chosen; reading it waits for step t only

Where rows are constrained, another thread reads step t between the two halves of a launch: while
the forward pass runs, and before tokens are chosen (`constraints.mask_thread`).

A row that ends was already part of the step in flight: that step's token for it is ignored.

On a CPU the choice of tokens is built in its turn, but started together with the next forward pass
(see LATE), so that what the device is left with is always the rest of a forward pass.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import mlx.core as mx

from bushel.cache import BatchState
from bushel.core import IntegrityError, TokenLogprob
from bushel.engine.constraints.constraint import ConstrainedRow
from bushel.engine.prefill import PrefilledRow
from bushel.engine.sampling.chooser import Masks
from bushel.engine.sampling.sampler import Sampled, Sampler, listed
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


class DecodeBatch:
    def __init__(self, model: Model):
        self._model = model
        self.rows = BatchState(model.make_state, model.pages)
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

    def leave(self, gone: Collection[Sequence]) -> None:
        keep = [row for row, sequence in enumerate(self.sequences) if sequence not in gone]
        if len(keep) == len(self.sequences):
            return
        self.rows.leave(keep)
        self._sampler.leave(keep)
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
        return PrefilledRow(sequence, prompt, snapshot.position, None, snapshot)

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
        pairs = zip(self.rows.positions, self._deltas, strict=True)
        where = [index + delta for index, delta in pairs]
        self.rows.reserve(inputs.shape[1])
        logits = self._model.forward(inputs, where, self.rows.layers)
        counts = [inputs.shape[1]] * len(self.sequences)
        self.rows.advance(counts)
        before, self._late = self._late, []
        return Run(inputs, counts, logits, before, self.rows.early() if before else [])

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

    def check_integrity(self) -> None:
        self.rows.check_integrity()
        self._sampler.check_integrity()
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
