"""Carries out decode steps: launches them, reads each a step later, and runs rounds of drafts.

Faults of a row stay with it. A step that fails as a whole is told to the engine, and so are rounds;
of a fault of the device see `engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from bushel.core import Event, TokenLogprob
from bushel.engine.constraints.mask_thread import MaskThread
from bushel.engine.decode_batch import DecodeBatch, Round, Step
from bushel.engine.drafts import rounds
from bushel.engine.recovery import Recovery
from bushel.engine.sequence import Phase, Sequence
from bushel.models.device import raise_device_fault


class StepFailed(Protocol):
    """Told of an error, and of the step that cannot be read, or that it was a round of drafts."""

    def __call__(
        self, error: Exception, unread: Step | None = None, *, drafts: bool = False
    ) -> None: ...


class RowRunner:
    """Owned by one engine. tell, fail: the engine's, of what happens to a sequence."""

    def __init__(
        self,
        batch: DecodeBatch,
        masks: MaskThread,
        recovery: Recovery,
        tell: Callable[[Event], None],
        fail: Callable[[Sequence, Exception], None],
        step_failed: StepFailed,
    ):
        self.batch = batch
        self.pending: Step | None = None  # launched, to be read in the next step of the engine
        self.verified = 0  # rows whose drafts the present or the last step has verified
        self.said = 0  # tokens in the present or the last step, of the row that said the most
        self.most = 0  # rows of the largest batch so far
        self.drafted, self.accepted = 0, 0  # tokens so far
        self._unread: Step | None = None  # being read in the present step
        self._round: Round | None = None  # launched and read in the present step
        self._failed: list[tuple[Sequence, Exception]] = []  # once their newest token is told
        self._masks, self._recovery = masks, recovery
        self._tell, self._fail, self._step_failed = tell, fail, step_failed

    @property
    def launched(self) -> bool:
        """Whether something runs that the present step has launched."""
        return self.pending is not None or self._round is not None

    @property
    def rows(self) -> int:
        """Of what the present or the last step has launched."""
        return self.verified or (0 if self.pending is None else len(self.pending.sequences))

    def reset(self, batch: DecodeBatch) -> None:
        """Go on with another batch; nothing is on its way."""
        self.batch = batch
        self.pending = self._unread = self._round = None
        self._failed = []

    def begin(self) -> Step | None:
        """A step of the engine; returns the decode step that it will read."""
        before, self.pending = self.pending, None
        self._unread = before
        self.verified = self.said = 0
        return before

    def launch(self, before: Step | None, *, late: bool) -> Exception | None:
        """Start the next decode step, unless a round runs; returns what went wrong, if the step as
        a whole did.

        before: the step whose tokens it runs, not read yet. late: its tokens may be chosen as late
        as the step after it starts, since there is nothing to run in between.
        """
        if self._round is not None:
            return None
        try:
            self.pending = self.advance(self.batch, before, late=late)
        except Exception as error:
            raise_device_fault(error)
            return error
        self._step_started()
        return None

    def advance(self, batch: DecodeBatch, before: Step | None = None, *, late: bool) -> Step | None:
        """One step of a batch; whose constraint fails ends, when `before` has been read."""
        if not len(batch):
            return None
        run = batch.forward()
        masks = None
        if batch.constraints:
            masks, failed = self._masks.make(batch, run, before)
            self._failed += failed
            if before is None:
                self._fail_rows()
        elif late:
            run.begin()
            run.go_on()
        return batch.choose(run, masks, late=late)

    def read(self, step: Step | None) -> None:
        """Wait for a step, and tell what its rows say."""
        if step is None:
            return
        try:
            results = step.read()
        except Exception as error:  # the step failed while it was computed
            raise_device_fault(error)
            self._unread, self._failed = None, []
            self._step_failed(error, step)
            return
        self._unread = None
        for sequence, tokens, logprobs in results:
            if sequence.phase is not Phase.DONE:
                self._add(sequence, tokens, logprobs)
        self._fail_rows()

    def _fail_rows(self) -> None:
        """Those that can neither go on nor end."""
        failed, self._failed = self._failed, []
        for sequence, error in failed:
            self._fail(sequence, error)

    def may_draft(self, before: Step | None) -> bool:
        """Whether it may be worth while to read all there is and see who has a draft."""
        drafts, context = self.batch.drafts, self.batch.rows.context_tokens
        return drafts is not None and drafts.may_propose(context, ahead=0 if before is None else 1)

    def launch_round(self) -> None:
        """Start one if anyone has a draft. All steps have been read."""
        try:
            self._round = rounds.begin(self.batch, self._masks, self._fail)
        except Exception as error:
            raise_device_fault(error)
            self._step_failed(error, drafts=True)
        if self._round is not None:
            self.verified = len(self.batch)
            self._step_started()

    def finish_round(self) -> None:
        round, self._round = self._round, None
        if round is None:
            return
        try:
            rounds.finish(self.batch, round, self._add)
        except Exception as error:  # it failed while it was computed, or taken back
            raise_device_fault(error)
            self._step_failed(error, drafts=True)
        else:
            self._recovery.round_finished()

    def left_batch(self) -> Iterator[Sequence]:
        """Rows at their limit, whose last tokens have not been read."""
        steps = [step for step in (self._unread, self.pending) if step is not None]
        held = set(self.batch.sequences) if steps else set()
        rows = dict.fromkeys(sequence for step in steps for sequence in step.sequences)
        yield from (sequence for sequence in rows if sequence not in held and not sequence.done)

    def drop_done(self) -> None:
        """What is on its way for nobody is not read."""
        if self.pending is not None and all(sequence.done for sequence in self.pending.sequences):
            self.pending = None

    def _step_started(self) -> None:
        self.most = max(self.most, len(self.batch))
        self._recovery.step_started(len(self.batch))

    def _add(
        self,
        sequence: Sequence,
        tokens: tuple[int, ...],
        logprobs: tuple[TokenLogprob, ...],
        drafted: int = 0,
    ) -> int:
        """Tell what a row says; returns how many of the tokens it took. drafted: see `rounds`."""
        try:
            event = sequence.add(tokens, logprobs, drafted=drafted)
        except Exception as error:  # one row's text handling is that row's alone
            self._fail(sequence, error)
            return 0
        self.said = max(self.said, len(event.token_ids))
        self.drafted, self.accepted = self.drafted + drafted, self.accepted + event.accepted
        self._tell(event)
        return len(event.token_ids)
