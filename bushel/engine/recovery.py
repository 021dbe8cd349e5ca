"""After a batched step has failed: who goes on, who is given up, and when batching is.

Nobody knows whose fault such a step was. Its rows are rebuilt from their tokens, and each runs one
step alone before it may share a batch again, so that the guilty one is found and the others go on.
If every row is innocent alone but the batch keeps failing, the model cannot be batched (B49).

A round of drafts that fails says nothing of that: its rows go on in plain steps, and if rounds keep
failing, there are no more drafts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from bushel.core import Event
from bushel.engine.decode_batch import DecodeBatch, Step
from bushel.engine.drafts.head_context import HeadContext
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sequence import Sequence
from bushel.models import Model
from bushel.models.device import raise_device_fault

log = logging.getLogger(__name__)

# Batched steps that fail in a row, with every row fine alone, before batching is given up.
_JOINT_FAULTS = 2
# Rounds of drafts that fail in a row before nobody drafts any more.
_ROUND_FAULTS = 2
# Steps that fail with this sequence in them before it is ended, whoever is to blame; none of those
# before it proved itself counts.
_MOST_FAULTS = 8
# Faults of the device that a sequence outlives: each one has everybody start over.
_MOST_DEVICE_FAULTS = 3


class Recovery:
    """Owned by one engine."""

    def __init__(self) -> None:
        self._joint_faults, self._round_faults = 0, 0

    @property
    def drafting_fails(self) -> bool:
        return self._round_faults >= _ROUND_FAULTS

    def round_finished(self) -> None:
        self._round_faults = 0

    @property
    def batching_fails(self) -> bool:
        return self._joint_faults >= _JOINT_FAULTS

    def step_started(self, rows: int) -> None:
        if rows > 1:
            self._joint_faults = 0

    def step_failed(
        self, sequences: Iterable[Sequence], *, drafts: bool
    ) -> tuple[list[Sequence], list[Sequence]]:
        """Of the rows of a failed step, those that start again under suspicion, and the others.

        drafts: it was a round of them.
        """
        rows = [*sequences]
        if drafts:
            self._round_faults += 1
        elif len(rows) > 1:
            self._joint_faults += 1
        for sequence in rows:
            sequence.was_in_failed_step()
        again = [sequence for sequence in rows if sequence.faults <= _MOST_FAULTS]
        return again, [sequence for sequence in rows if sequence.faults > _MOST_FAULTS]

    def device_failed(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """Of the rows that had begun, those that have been through it too often."""
        rows = [sequence for sequence in sequences if not sequence.done]
        for sequence in rows:
            sequence.suspect, sequence.device_faults = True, sequence.device_faults + 1
        return [sequence for sequence in rows if sequence.device_faults > _MOST_DEVICE_FAULTS]


def run_alone(
    ready: PrefilledRow, model: Model, advance: Callable[[DecodeBatch], Step | None]
) -> tuple[PrefilledRow, list[Event]]:
    """One decode step of a row by itself; raises what that step does.

    Returns the row as it is then, and what it said.
    """
    sequence, alone = ready.sequence, DecodeBatch(model)
    if sequence.constrained is not None:
        sequence.constrained.follow(sequence.tokens)
    alone.join([ready])
    step = advance(alone)
    events = []
    if step is not None and not sequence.done:
        events = [sequence.add(tokens, logprobs) for _, tokens, logprobs in step.read()]
    (position,) = alone.rows.positions
    context = _context_before(ready.context, model)
    return PrefilledRow(
        sequence, ready.prompt, position, alone.rows.single(0), context=context
    ), events


def _context_before(context: HeadContext | None, model: Model) -> HeadContext | None:
    """What a prediction head knows of a row that has run a token since, which it has not read.

    What it makes of the token before that is no draft of what follows now.
    """
    if context is None or model.mtp is None:
        return None
    try:
        context.read(model.mtp)
    except Exception as error:  # a reply does not need it
        raise_device_fault(error)
        log.warning("what a prediction head knows of a row is lost: %s", error)
        return None
    return HeadContext(context.cache)
