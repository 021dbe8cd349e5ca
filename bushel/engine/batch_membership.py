"""Who is in the decode batch: rows that join it, leave it at their end, and yield before it.

    join      rows whose prompts have run, all at once; one under suspicion after a step by itself
    retire    rows that have ended; what they have run may be kept for the next turn
    preempt   rows and prompts that give up their slot, with their state or without it

Changing a batch may fail halfway. Nobody knows what it is then, and all of its rows are rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from bushel.cache.prefix import PrefixCache
from bushel.core import Event
from bushel.engine.decode_batch import DecodeBatch, Step
from bushel.engine.plan import Plan
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.recovery import run_alone
from bushel.engine.request_queue import RequestQueue
from bushel.engine.row_runner import RowRunner
from bushel.engine.sequence import Sequence
from bushel.models import Model
from bushel.models.device import device_fault, raise_device_fault


class Rebuild(Protocol):
    """Told of an error, of the step that cannot be read any more, and of rows that were joining."""

    def __call__(
        self, error: Exception, unread: Step | None = None, joining: Iterable[Sequence] = ()
    ) -> None: ...


class BatchMembership:
    """Owned by one engine. tell, fail: the engine's, of what happens to a sequence. renew_pages:
    called after an evaluation that failed.
    """

    def __init__(
        self,
        model: Model,
        queue: RequestQueue,
        rows: RowRunner,
        prefixes: PrefixCache | None,
        tell: Callable[[Event], None],
        fail: Callable[[Sequence, Exception], None],
        rebuild: Rebuild,
        renew_pages: Callable[[], bool],
    ):
        self._model, self._queue, self._rows, self._prefixes = model, queue, rows, prefixes
        self._tell, self._fail, self._rebuild, self._renew_pages = tell, fail, rebuild, renew_pages
        self.preemptions = 0  # of rows and prompts, so far

    @property
    def _batch(self) -> DecodeBatch:
        return self._rows.batch

    # -- giving way --------------------------------------------------------------------------

    def preempt(self, plan: Plan, now: float) -> None:
        """Whoever yields goes on later from where it is; its newest token is read in this step."""
        self.preemptions += len({*plan.preempt, *plan.drop})
        rows = enumerate(self._batch.sequences)
        yielding = [(at, sequence) for at, sequence in rows if sequence.row.id in plan.preempt]
        keeping = [at for at, sequence in yielding if sequence.row.id not in plan.drop]
        for at, sequence in yielding:
            if sequence.row.id in plan.drop:
                self._keep(at, sequence, "grid")  # for as long as there is room
        try:
            aside = [self._batch.put_aside(at) for at in keeping]
            self._batch.leave([sequence for _, sequence in yielding])
        except Exception as error:  # the batch may be half changed
            raise_device_fault(error)
            self._rebuild(error, self._rows.pending)
            return
        for ready in aside:
            self._queue.put_back(ready, now)
        for _, sequence in yielding:
            if sequence.row.id in plan.drop:
                self._queue.restart(sequence, now, slot=False, prefixes=self._prefixes)
        for id in plan.preempt:
            if id in self._queue.prefilling:
                self._queue.pause(id, now)
        for id in plan.drop:
            self._queue.drop(id, now, self._prefixes)

    # -- leaving -----------------------------------------------------------------------------

    def retire(self) -> None:
        if not (ended := self._batch.ended()):
            return
        for row, sequence in ended:
            if not sequence.failed and sequence.request.prompt.borders.reply:
                self._keep(row, sequence, "reply")  # the next turn may begin with both
        try:
            self._batch.leave([sequence for _, sequence in ended])
        except Exception as error:  # the batch may be half changed
            raise_device_fault(error)
            self._rebuild(error, self._rows.pending)

    def _keep(self, row: int, sequence: Sequence, sort: str) -> None:
        """What a row of the batch has run so far."""
        if self._prefixes is None:
            return
        rows = self._batch.rows
        self._prefixes.keep(
            sequence.root,
            sequence.run_key,
            rows.layers,
            sort,
            row=row,
            batch=rows.batched,
            generated=True,
        )

    # -- joining -----------------------------------------------------------------------------

    def join(self, plan: Plan, now: float) -> None:
        """All at once, but for those that have to run alone before: of these one in each step, as
        everybody else waits for it.
        """
        alone = [id for id in plan.join if self._queue.runs_alone(id)]
        together = [id for id in plan.join if id not in alone]
        for ids in (together, alone[:1]):
            # Some may have been rebuilt since it was planned.
            rows = [ready for id in ids if (ready := self._queue.join(id, now)) is not None]
            if rows:
                self._join_rows(rows, now, alone=ids is not together)

    def _join_rows(self, rows: list[PrefilledRow], now: float, *, alone: bool) -> None:
        try:
            cleared = [self._run_alone(ready) for ready in rows] if alone else rows
            if present := [ready for ready in cleared if ready is not None]:
                self._batch.join(present)
        except Exception as error:  # the batch may be half changed
            if device_fault(error) is not None:
                for ready in rows:
                    self._queue.put_back(ready, now)  # it is nowhere else
                raise
            if len(rows) == 1:
                self._fail(rows[0].sequence, error)
            self._rebuild(error, self._rows.pending, [ready.sequence for ready in rows])

    def _run_alone(self, ready: PrefilledRow) -> PrefilledRow | None:
        """One decode step of a sequence by itself; None if that ends it."""
        sequence = ready.sequence
        try:
            ready, events = run_alone(ready, self._model, partial(self._rows.advance, late=False))
            for event in events:
                self._tell(event)
        except Exception as error:  # nobody else was there
            raise_device_fault(error)
            self._fail(sequence, error)
            self._renew_pages()
        sequence.suspect = False
        return None if sequence.done else ready
