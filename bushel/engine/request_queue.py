"""Requests on their way to the decode batch, and who has come how far.

    waiting     for a slot; also for what is read from disk or compiled for it
    prefilling  prompts that run, in chunks
    ready       rows that could decode: with a slot, or waiting for one

`schedule` decides who moves; this carries it out. Owned by one engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator

from bushel.cache.prefix import PrefixCache, ReusePlan
from bushel.core import BushelError
from bushel.core.footprint import Memory
from bushel.engine.plan import BEFORE, Costs, PendingPrompt, Row, Served, State, WorkClass
from bushel.engine.prefill import Prefill
from bushel.engine.prefill_pass import shares, width_of
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sequence import Phase, Sequence
from bushel.models import Model

# Tokens that a row is promised memory for beyond those it has: when it comes, and as it decodes. It
# takes more as it needs it, and yields if there is none.
ROOM, GROWTH = 64, 16
# Owners and groups that are remembered before those who have gone are looked for.
_MANY = 4096


_Seen = tuple[Prefill, ReusePlan, Row]


class RequestQueue:
    def __init__(self, model: Model, piece: int = 0):
        """piece: tokens of every chunk, where the answer depends on them; 0: any number."""
        self._model = model
        self._piece = piece
        self._ids = itertools.count()
        self.waiting: dict[int, Prefill] = {}
        self.prefilling: dict[int, Prefill] = {}
        self.ready: dict[int, PrefilledRow] = {}  # by the ids of their rows
        self._owners: dict[str, float] = {}  # when they last got a slot
        self._groups: dict[str, float] = {}
        self._chunks: dict[str, float] = {}  # when owners last ran one
        self._classes: dict[WorkClass, float] = {}
        # Of each that waits, as it was last looked at: there may be a thousand in every step.
        self._pending: dict[int, tuple[_Seen, PendingPrompt]] = {}
        self._background = BEFORE  # when a chunk of work in the background last ran
        self._live = BEFORE  # when other work was last here

    def __bool__(self) -> bool:
        return bool(self.waiting or self.prefilling or self.ready)

    # -- arriving ----------------------------------------------------------------------------

    def arrive(self, sequences: list[Sequence], now: float) -> Prefill:
        """A request that waits from now on."""
        request, id = sequences[0].request, next(self._ids)
        for sequence in sequences:
            sequence.row = Row(
                next(self._ids),
                id,
                now,
                request.owner,
                request.group or request.id,
                sequence.reach(ROOM),
                slot=False,
                state=False,
                priority=request.priority,
                background=request.background,
            )
        job = self.waiting[id] = Prefill(self._model, sequences, id, now, piece=self._piece)
        return job

    def restart(
        self,
        sequence: Sequence,
        now: float,
        *,
        slot: bool,
        prefixes: PrefixCache | None = None,
    ) -> None:
        """A row without state runs its tokens again, at once if it has a slot.

        prefixes: where to look for what is still there of it, if that may be trusted.
        """
        sequence.phase = Phase.PREFILL if slot else Phase.WAITING
        row, more = sequence.row, 0 if slot else 1
        sequence.row = row._replace(
            since=now,
            slot=slot,
            state=False,
            yields=row.yields + more,
            length=sequence.reach(ROOM),
        )
        job = Prefill(self._model, [sequence], row.order, now, piece=self._piece, rebuilt=True)
        job.prefixes = prefixes
        (self.prefilling if slot else self.waiting)[next(self._ids)] = job

    # -- moving on ---------------------------------------------------------------------------

    def admit(self, id: int, now: float) -> None:
        job = self.prefilling[id] = self.waiting.pop(id)
        job.last_served = job.admitted = now
        for sequence in job.sequences:
            sequence.phase = Phase.PREFILL
        self._serve(job.sequences[0].row, now)

    def ran(self, job: Prefill, now: float) -> None:
        """A chunk of it."""
        row = job.sequences[0].row
        job.last_served = self._chunks[row.owner] = now
        if row.background:
            self._background = now

    def finish(self, id: int, now: float) -> list[PrefilledRow]:
        """A prompt has run: its first row has its slot, the others wait for theirs."""
        rows = self.prefilling[id].finish()
        del self.prefilling[id]
        for at, ready in enumerate(rows):
            sequence, own = ready.sequence, at == 0
            sequence.row = sequence.row._replace(since=now, slot=own, state=own)
            self.ready[sequence.row.id] = ready
        return rows

    def runs_alone(self, id: int) -> bool:
        """Whether it has to, for a step, before it may share a batch: one without any state has to
        make some.
        """
        ready = self.ready.get(id)
        return ready is not None and (ready.sequence.suspect or ready.position == 0)

    def join(self, id: int, now: float) -> PrefilledRow | None:
        """None if it is not there any more."""
        ready = self.ready.pop(id, None)
        if ready is not None:
            row = ready.sequence.row
            if not row.slot:
                self._serve(row, now)
            ready.sequence.row = row._replace(since=now, slot=True, state=True)
        return ready

    def _serve(self, row: Row, now: float) -> None:
        self._owners[row.owner] = self._groups[row.group] = now
        self._classes[WorkClass.of(row)] = now

    # -- giving way --------------------------------------------------------------------------

    def put_back(self, ready: PrefilledRow, now: float) -> None:
        """A row that ran waits for a slot, with its state."""
        sequence = ready.sequence
        row = sequence.row
        sequence.phase = Phase.READY
        sequence.row = row._replace(
            since=now,
            slot=False,
            state=True,
            yields=row.yields + 1,
            length=sequence.reach(ROOM),
        )
        self.ready[row.id] = ready

    def pause(self, id: int, now: float) -> None:
        """A prompt that runs waits again, with its state."""
        job = self.waiting[id] = self.prefilling.pop(id)
        job.last_served = now
        for sequence in job.sequences:
            sequence.phase = Phase.WAITING
            sequence.row = sequence.row._replace(yields=sequence.row.yields + 1)

    def drop(self, id: int, now: float, prefixes: PrefixCache | None) -> None:
        """Free the state of a row, or a prompt, that waits for a slot or for its batch."""
        if (ready := self.ready.pop(id, None)) is not None:
            self.restart(ready.sequence, now, slot=False, prefixes=prefixes)
        elif (job := self.waiting.get(id)) is not None:
            job.leave()
            self.waiting[id] = self._anew(job)

    def start_over(self, running: Iterable[Sequence], now: float) -> None:
        """Nobody's state can be trusted: not that of these rows, and not of any that is here."""
        for jobs in (self.waiting, self.prefilling):
            for id in [id for id, job in jobs.items() if job.prompt is not None]:
                jobs[id] = self._anew(jobs[id])
        ready, self.ready = self.ready, {}
        for row in ready.values():
            self.restart(row.sequence, now, slot=row.sequence.row.slot)
        for sequence in running:
            self.restart(sequence, now, slot=True)

    def begin_again(self, id: int, *, alone: bool) -> None:
        """A prompt that runs begins again; alone: in passes that it shares with nobody."""
        job = self.prefilling[id] = self._anew(self.prefilling[id])
        job.alone = job.alone or alone

    def _anew(self, job: Prefill) -> Prefill:
        """The same prompt from its beginning, without any state."""
        again = Prefill(self._model, job.sequences, job.order, job.last_served, piece=self._piece)
        again.admitted, again.prefixes, again.every = job.admitted, job.prefixes, job.every
        again.rebuilt, again.alone = job.rebuilt or job.prompt is not None, job.alone
        return again

    # -- leaving -----------------------------------------------------------------------------

    def forget(self, sequences: Collection[Sequence]) -> None:
        """They are not here any more, whatever was."""
        for id in [id for id, row in self.ready.items() if row.sequence in sequences]:
            del self.ready[id]
        for jobs in (self.waiting, self.prefilling):
            for id in [id for id, job in jobs.items() if job.sequences[0] in sequences]:
                del jobs[id]

    def drop_done(self) -> None:
        for jobs in (self.waiting, self.prefilling):
            for id in [id for id, job in jobs.items() if all(one.done for one in job.sequences)]:
                jobs.pop(id).leave()
        for id in [id for id, row in self.ready.items() if row.sequence.done]:
            del self.ready[id]

    def clear(self) -> None:
        """Nobody is here any more."""
        self.waiting.clear()
        self.prefilling.clear()
        self.ready.clear()

    def forget_served(self, running: Iterable[Sequence]) -> None:
        """Owners and requests that are gone."""
        if len(self._groups) < _MANY:
            return
        rows = [sequence.row for sequence in (*self.sequences(), *running)]
        owners, groups = {row.owner for row in rows}, {row.group for row in rows}
        self._owners = {name: at for name, at in self._owners.items() if name in owners}
        self._groups = {name: at for name, at in self._groups.items() if name in groups}
        self._chunks = {name: at for name, at in self._chunks.items() if name in owners}
        classes = {WorkClass.of(row) for row in rows}
        self._classes = {each: at for each, at in self._classes.items() if each in classes}

    # -- looking at it -----------------------------------------------------------------------

    def sequences(self) -> Iterator[Sequence]:
        for job in (*self.waiting.values(), *self.prefilling.values()):
            yield from job.sequences
        yield from (ready.sequence for ready in self.ready.values())

    def begun(self) -> Iterator[Sequence]:
        """Those of which something has been computed."""
        for job in (*self.waiting.values(), *self.prefilling.values()):
            if job.prompt is not None:
                yield from job.sequences
        yield from (ready.sequence for ready in self.ready.values())

    def missing(self) -> int:
        """Tokens that rows on their way were promised memory for, and have not written yet."""
        jobs = sum(
            max(0, sequence.row.length - job.done)
            for job in self._begun_jobs()
            for sequence in job.sequences[:1]
        )
        ready = self.ready.values()
        return jobs + sum(max(0, one.sequence.row.length - one.position) for one in ready)

    def _begun_jobs(self) -> Iterator[Prefill]:
        yield from self.prefilling.values()
        yield from (job for job in self.waiting.values() if job.prompt is not None)

    def lengths(self) -> Iterator[int]:
        """Of every row whose state is held, or promised to be."""
        for job in self._begun_jobs():
            # Choices share one copy of their prompt's state until each has its own.
            yield from [sequence.row.length for sequence in job.sequences][:2]
        shared = dict[int, int]()
        for ready in self.ready.values():
            row = ready.sequence.row
            if row.state:
                yield row.length
            else:
                shared[id(ready.snapshot)] = row.length
        yield from shared.values()

    @property
    def deferred(self) -> list[Prefill]:
        """Those that wait for what is read or compiled for them, and not for room."""
        return [job for job in self.waiting.values() if not job.complete]

    def arrivals(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Waiting prompts whose files have been read, and those whose grammars are compiled."""
        waiting = self.waiting.items()
        read = tuple(id for id, job in waiting if job.has_been_read)
        return read, tuple(id for id, job in waiting if job.has_been_compiled)

    def state(
        self,
        now: float,
        running: Iterable[Sequence],
        costs: Costs,
        memory: Memory | None,
    ) -> State:
        rows = tuple(sequence.row._replace(length=sequence.reach(GROWTH)) for sequence in running)
        if not all(row.background for row in rows) or self._has_live:
            self._live = now
        return State(
            now=now,
            running=rows,
            ready=tuple(ready.sequence.row for ready in self.ready.values()),
            prefilling=tuple(_pending(id, job) for id, job in self.prefilling.items()),
            waiting=self._all_waiting(),
            costs=costs,
            memory=memory,
            served=Served(
                self._owners,
                self._groups,
                self._chunks,
                self._classes,
                self._background,
                self._live,
            ),
        )

    def _all_waiting(self) -> tuple[PendingPrompt, ...]:
        """Those that wait for nothing but a slot, in order of arrival."""
        before, self._pending = self._pending, {}
        for id, job in self.waiting.items():
            if job.complete:
                known, seen = before.get(id), _seen(job)
                if known is None or known[0] != seen:
                    known = seen, _pending(id, job)
                self._pending[id] = known
        return tuple(pending for _, pending in self._pending.values())

    @property
    def _has_live(self) -> bool:
        return any(not sequence.request.background for sequence in self.sequences())

    def check_integrity(self) -> None:
        for job in (*self.waiting.values(), *self.prefilling.values()):
            if not 0 <= job.done <= max(0, job.target):
                raise BushelError(f"a prefill at {job.done} of {job.target}")
        for pending in self._all_waiting():
            if pending != (now := _pending(pending.id, self.waiting[pending.id])):
                raise BushelError(f"what waits was told as {pending}, and is {now}")


def _seen(job: Prefill) -> _Seen:
    """What is told of one that waits changes with these, each of which is replaced as a whole."""
    return job, job.reuse, job.sequences[0].row


def _pending(id: int, job: Prefill) -> PendingPrompt:
    target, expected, row = job.target, job.expected, job.sequences[0].row
    return PendingPrompt(
        id,
        expected,
        job.last_served,
        job.order,
        max(0, target - expected),
        max(sequence.row.length for sequence in job.sequences),
        len(job.sequences),
        row.owner,
        row.group,
        job.admitted,
        row.yields,
        job.prompt is not None,
        job.rebuilt and row.yields > 0,
        row.priority,
        row.background,
        shares(job),
        width_of(job),
        job.wants_logprobs,
    )
