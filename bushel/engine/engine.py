"""The loop: schedule, run, emit. One thread owns it, and everything it holds.

Faults stay with their row. A request whose preparation, prefill or text handling raises ends
with an error. A whole batched step that raises is another matter: see `recovery`. After a fault of
the device no computed value can be trusted: `step` raises it, and `start_over` begins again.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from bushel.cache import unbatchable
from bushel.cache.prefix import PrefixCache, key_of
from bushel.core import BushelError, DeviceFault, Event, Request
from bushel.core.footprint import Memory
from bushel.core.status import CacheStatus, EngineStatus, SpeculationStatus
from bushel.core.wire import Started
from bushel.engine.admission import Admission
from bushel.engine.batch_membership import BatchMembership
from bushel.engine.constraints.constraint import too_slow
from bushel.engine.constraints.mask_thread import MaskThread
from bushel.engine.decode_batch import LATE, DecodeBatch, Step
from bushel.engine.device_memory import MemoryClaim, give_back
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.memory_sharing import MemorySharing
from bushel.engine.model_policy import model_policy
from bushel.engine.plan import Arrivals, Plan, Policy, Work
from bushel.engine.prompt_runner import PromptRunner
from bushel.engine.recovery import Recovery
from bushel.engine.request_queue import RequestQueue
from bushel.engine.row_runner import RowRunner
from bushel.engine.scheduler import schedule
from bushel.engine.sequence import Phase, Sequence
from bushel.engine.status import (
    describe_cache,
    describe_memory,
    describe_requests,
    describe_speculation,
)
from bushel.engine.step_costs import Passes
from bushel.engine.step_times import StepTimes, tell_slow
from bushel.models import Model, device
from bushel.models.device import ON_CPU, device_fault, raise_device_fault

log = logging.getLogger(__name__)

_GO_ON, _NOTHING = Plan(decode=True), Plan()
_SHORT_WAIT = 0.01  # seconds until the next look at what has been read or compiled


class Engine:
    def __init__(
        self,
        model: Model,
        policy: Policy,
        clock: Callable[[], float] = time.perf_counter,
        memory: Memory | None = None,
        prefixes: PrefixCache | None = None,
        snapshot_every: int = 0,
        computes_whole: str = "it is switched off",
        claim: MemoryClaim | None = None,
        attention: Mapping[str, str] | None = None,
        speculation: Speculation | None = None,
    ):
        self.model = model
        self.attention = dict(attention or {})  # of rows that share a batch, by kind of layer
        self.speculation = speculation or Speculation()
        self.prefixes = prefixes
        self.computes_whole = computes_whole  # why every prompt is, where no prefix is reused
        self.single_because = model.single or unbatchable(model.make_state())
        self.policy, piece = model_policy(model, policy, single=bool(self.single_because))
        self.admission = Admission(memory, model.context, self.policy.least_chunk)
        self._sharing = MemorySharing(model, self.admission, prefixes, claim or MemoryClaim())
        self.prefilled = 0  # tokens of prompts, in the last step
        # Called in a step with events to take, which would wait for its prompts.
        self.before_prompts: Callable[[], None] = lambda: None
        self.work = Work()  # of the present or the last step; any thread may look
        self._snapshot_every = snapshot_every
        self._times = StepTimes(clock, behind=not ON_CPU)
        self._queue = RequestQueue(model, piece)
        self.masks = MaskThread(model)
        pages_hold = self._sharing.pages_hold
        self._prompts = PromptRunner(self._queue, self._tell, self._fail, pages_hold)
        self._recovery = Recovery()
        doing = self._tell, self._fail, self._rebuild
        self._rows = RowRunner(self._new_batch(), self.masks, self._recovery, *doing)
        parts = model, self._queue, self._rows, prefixes
        self._members = BatchMembership(*parts, *doing, self._renew_pages)
        self._fault: DeviceFault | None = None  # that nobody has been told of
        self._events: list[Event] = []
        self._someone_ended = False  # since `_drop_done` last looked

    # -- what callers do -------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Queue a request; RequestError if it could not be served even alone."""
        decode, longest = self.model.tokenizer.decode, self.admission.longest(request)
        key = key_of(request.prompt)
        sequences = [
            Sequence.start(request, choice, decode, longest, key)
            for choice in range(len(request.choices))
        ]
        for sequence in sequences:
            sequence.uses_head = self.speculation.uses_head(sequence.decoding)
        job = self._queue.arrive(sequences, self._times.clock())
        job.prefixes, job.every = self.prefixes, self._snapshot_every
        try:
            job.arrive()
            self.masks.begin(job)
        except Exception:
            self._queue.forget(sequences)  # the caller is told, and nobody waits for it
            raise

    def abort(self, request_id: str) -> None:
        """Stop a request now; whatever it held is free when this returns (B47)."""
        for sequence in list(self._sequences()):
            if sequence.request.id == request_id:
                self._tell(sequence.end("abort"))
        try:
            self._drop_done()
        except Exception as error:
            self._fault = device_fault(error)  # the next step tells it
            if self._fault is None:
                raise

    def step(self) -> list[Event]:
        """One turn of the loop; does nothing when idle. DeviceFault: see `start_over`."""
        if self.idle:
            return self.take_events()
        try:
            self._step()
        except Exception as error:
            raise_device_fault(error)
            raise
        return self.take_events()

    def _step(self) -> None:
        if self._fault is not None:
            raise self._fault
        arrivals = self._arrivals()
        self.take_in(arrivals)
        plan = self.decide()
        passes = self.execute(plan, self._rows_read)
        rows, read = self._rows.rows, self._rows.verified > 0
        seconds, together = self._times.end(rows, passes, read=read, decoded=plan.decode)
        self.prefilled = together.tokens
        if self.idle:
            self._times.rest()
        tell_slow(seconds, self.work, self.policy.token_gap, passes)

    def _rows_read(self) -> None:
        """To launch prompts takes about as long as to run them: see `Stopwatch`."""
        self._times.caught_up()
        if self._events:
            self.before_prompts()

    @property
    def idle(self) -> bool:
        quiet = not self._queue and not self._batch.sequences and self._rows.pending is None
        return quiet and self._fault is None

    # -- schedule --------------------------------------------------------------------------

    def _arrivals(self) -> Arrivals:
        """The one look at clock, disk and compilers; all else in a step follows from it."""
        now = self._times.clock()
        if self.prefixes is not None:
            self.prefixes.settle()
        read, compiled = self._queue.arrivals() if self._queue.waiting else ((), ())
        return Arrivals(now, read, compiled, self._batch.too_slow())

    def take_in(self, arrivals: Arrivals) -> None:
        """Begin a step with what has arrived."""
        self._times.began = arrivals.now
        for id in arrivals.read:
            self._queue.waiting[id].take_read()
        for id in arrivals.compiled:
            job = self._queue.waiting[id]
            try:
                self.masks.take_compiled(job)
            except Exception as error:  # its grammar cannot be compiled
                for sequence in job.sequences:
                    self._fail(sequence, error)
        for sequence in self._batch.sequences if arrivals.slow else ():
            if sequence.row.id in arrivals.slow:
                self._fail(sequence, too_slow())
        self._members.retire()

    def decide(self) -> Plan:
        """What the step will do."""
        plan = _GO_ON  # what `schedule` says to running rows alone
        costs = self._times.costs(len(self._batch) + len(self._queue.ready))
        self._sharing.grow(self._rows.said, self.speculation.widest)
        if self._queue or self._sharing.outgrown:
            state = self._queue.state(self._now, self._batch.sequences, costs, self._promised())
            since, waited = self._times.since_decode, self._times.waited
            state = dataclasses.replace(state, since_decode=since, waited=waited)
            plan = schedule(state, self.policy)
            if plan == _NOTHING and self._rows.pending is None:
                self._wait()
        self.work = Work.of(plan, len(self._batch), costs)
        return plan

    def _wait(self) -> None:
        """All that is left to do needs something compiled or read."""
        compiling = self.masks.wait(self._queue.waiting.values(), _SHORT_WAIT)
        if not compiling and self.prefixes is not None:
            self.prefixes.wait(_SHORT_WAIT)

    def _promised(self) -> Memory | None:
        return self._sharing.promised(self._queue, self._batch.sequences)

    # -- run -------------------------------------------------------------------------------

    def execute(self, plan: Plan, rows_read: Callable[[], None] = lambda: None) -> list[Passes]:
        """Carry out a plan; returns each pass that was run of prompts.

        rows_read: called before these are launched, when all that was launched before is done.
        """
        if plan.preempt or plan.drop:
            self._members.preempt(plan, self._now)
            self._sharing.fit(self._promised())
        self._admit(plan)
        self._members.join(plan, self._now)
        rows, fault = self._rows, None
        pending = rows.begin()
        if plan.decode and rows.may_draft(pending):
            rows.read(pending)  # what drafts go on from
            pending = None
            self._members.retire()
            rows.launch_round()
        if plan.decode:
            fault = rows.launch(pending, late=LATE and not plan.chunks)
        launched = rows.launched
        if launched or not plan.chunks:
            self._prompts.wait()
        rows.read(pending)
        if fault is not None:
            self._rebuild(fault)  # before prompts: it may have left pages that nobody can write to
        rows_read()
        passes = self._prompts.run(plan.chunks, self._now, catch_up=not launched)
        renewed = self._prompts.failed and self._renew_pages()
        if not renewed:
            rows.finish_round()
        self._drop_done()
        return passes

    def _admit(self, plan: Plan) -> None:
        for id in plan.admit:
            self._queue.admit(id, self._now)
        if plan.admit or plan.join or self._sharing.outgrown:
            self._sharing.fit(self._promised())

    # -- emit ------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        if event.finish_reason is not None:
            self._someone_ended = True

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def take_started(self) -> list[Started]:
        """Requests whose prompts began to run since the last call."""
        started, self._prompts.started = self._prompts.started, []
        return started

    # -- faults and endings ----------------------------------------------------------------

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        if sequence.done:
            return
        if not isinstance(error, BushelError):
            log.error("request %s failed", sequence.request.id, exc_info=error)
        self._tell(sequence.fail(error))

    def _rebuild(
        self,
        error: Exception,
        unread: Step | None = None,
        joining: Iterable[Sequence] = (),
        *,
        drafts: bool = False,
    ) -> None:
        """A batched step failed: every row starts again from its tokens, under suspicion.

        So do rows of a step that cannot be read any more, one of which at its limit has left the
        batch, and those that were joining. drafts: the step was a round of them.
        """
        log.warning("a decode step of %d rows failed: %s", len(self._batch), error)
        held = (*self._batch.sequences, *(unread.sequences if unread else ()), *joining)
        sequences = [sequence for sequence in dict.fromkeys(held) if not sequence.done]
        again, given_up = self._recovery.step_failed(sequences, drafts=drafts)
        if drafts and self._recovery.drafting_fails:
            self.speculation.close()
            self.speculation = Speculation(why_off=f"rounds of drafts fail: {error}")
            self.model.mtp = None
            for job in (*self._queue.prefilling.values(), *self._queue.waiting.values()):
                job.context = None  # nobody reads it
        if self._recovery.batching_fails:
            self.single_because = f"batched steps fail: {error}"
            self.policy = dataclasses.replace(self.policy, max_batch=1)
        self._queue.forget(set(sequences))
        self._rows.reset(self._new_batch())
        for sequence in again:
            self._queue.restart(sequence, self._now, slot=True)
        for sequence in given_up:
            self._fail(sequence, error)
        self._renew_pages()  # last: it may hear of a fault, and `start_over` has to find everybody

    def start_over(self, fault: DeviceFault) -> None:
        """After a fault of the device: nothing that it computed is kept, and all rows run again.

        What was told of them before is right: to read a token is to hear of all faults before it.
        """
        log.error("%s All that it computed is thrown away.", fault)
        device.settle()
        self._fault = None
        rows = (*self._batch.sequences, *self._rows.left_batch(), *self._queue.begun())
        for sequence in self._recovery.device_failed(rows):
            self._fail(sequence, fault)
        self._throw_away()
        self._drop_done()

    def _renew_pages(self) -> bool:
        """After an evaluation that failed: if it was to write to pages, they cannot be read any
        more, and all rows begin again in others. Returns whether that is so.
        """
        if self._sharing.pages_hold():
            return False
        log.warning("what was written to pages cannot be computed: all rows begin again in others")
        self._throw_away()
        return True

    def _throw_away(self) -> None:
        """All that was computed; whoever runs begins again from the tokens that were told."""
        running = dict.fromkeys((*self._batch.sequences, *self._rows.left_batch()))
        self._sharing.new_pages()
        self._rows.reset(self._new_batch())
        self._prompts.forget()
        self._times.rest()
        self.model.distrust()
        if self.prefixes is not None:
            self.prefixes.distrust()
        self._queue.start_over([sequence for sequence in running if not sequence.done], self._now)

    @property
    def _now(self) -> float:
        """When the present or the last step began."""
        return self._times.began

    @property
    def _batch(self) -> DecodeBatch:
        return self._rows.batch

    def _new_batch(self) -> DecodeBatch:
        return DecodeBatch(self.model, self.speculation.batch_drafts())

    def _sequences(self) -> Iterable[Sequence]:
        yield from self._queue.sequences()
        yield from self._batch.sequences
        yield from self._rows.left_batch()

    def _drop_done(self) -> None:
        if not self._someone_ended:
            return
        self._someone_ended = False
        self._queue.drop_done()
        self._members.retire()
        self._rows.drop_done()
        self._sharing.fit(self._promised())
        self._queue.forget_served(self._batch.sequences)
        if self.idle:
            self._prompts.forget()
            self._times.rest()

    # -- looking at it ---------------------------------------------------------------------

    def status(self) -> EngineStatus:
        sequences = dict.fromkeys(self._sequences())
        waiting = sum(sequence.phase is Phase.WAITING for sequence in sequences)
        alone = self.policy.max_batch == 1 and self.single_because
        return EngineStatus(
            running=len(sequences) - waiting,
            waiting=waiting,
            deferred=sum(len(job.sequences) for job in self._queue.deferred),
            lane="single" if alone else "batch",
            lane_reason=self.single_because,
            attention={} if alone else self.attention,
            max_decode_batch=self.max_decode_batch,
            preemptions=self.preemptions,
            memory=describe_memory(self._batch.rows, self.admission.status(self._promised())),
            requests=describe_requests(sequences, self._queue.prefilling.values()),
            cache=self.cache_status(),
            speculation=self._speculation_status(),
        )

    @property
    def preemptions(self) -> int:
        """Of rows and prompts, so far."""
        return self._members.preemptions

    @property
    def max_decode_batch(self) -> int:
        """Largest so far."""
        return self._rows.most

    def _speculation_status(self) -> SpeculationStatus:
        drafts, counts = self._batch.drafts, (self._rows.drafted, self._rows.accepted)
        names, why_fewer = ([], "") if drafts is None else (drafts.names, drafts.why_fewer)
        return describe_speculation(names, *counts, self.speculation, why_fewer)

    def cache_status(self) -> CacheStatus:
        return describe_cache(self.prefixes, self.computes_whole)

    def clear_cache(self) -> None:
        if self.prefixes is not None:
            self.prefixes.clear()
        for job in self._queue.waiting.values():  # what is being read was cleared as well
            job.fetch = None
        self.rest()

    def allocate_pages(self) -> int:
        """Before anyone waits, where memory is the device's own; returns the bytes."""
        return self._sharing.allocate()

    def rest(self) -> None:
        """Nobody has asked for anything for a while: what was freed goes back to the system."""
        if self.idle:
            self._sharing.rest()
            give_back()

    def keep_to(self, limit: int, usable: int, kept: int) -> None:
        """Bytes for MLX, of them for rows and prefixes, and for prefixes; see `settle_memory`."""
        self._sharing.keep_to(limit, usable, kept)
        self.settle_memory()
        give_back()

    def settle_memory(self) -> None:
        """Between steps: what is here runs to its end before a lower limit holds."""
        self._sharing.settle(self._queue, self._batch.sequences)

    def check_integrity(self) -> None:
        self._batch.check_integrity()
        self._queue.check_integrity()
        if self.prefixes is not None:
            self.prefixes.check_integrity()
        self._sharing.check_integrity()

    def close(self) -> None:
        self._queue.clear()
        self._rows.reset(self._new_batch())
        self._prompts.forget()
        self.masks.close()
        if self.prefixes is not None:
            self.prefixes.close()
        self.model.close()
        self.speculation.close()
        self._sharing.close()
