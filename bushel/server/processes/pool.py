"""Workers that prepare requests, one job at a time each.

A job that takes too long, or takes its worker down, costs that worker its life and nobody else
anything: a new one takes its place. A worker that dies or is stopped under a job is no fault of
the job's, the first time: another one gets it. What a job takes is told by its worker's clock: on
a busy machine, or while it is stopped, a worker does nothing for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import Any, Literal

from bushel.core.options import ModelInfo
from bushel.core.wire import (
    TOO_MUCH,
    Check,
    Decode,
    DecodedText,
    Encode,
    Failed,
    FromWorker,
    LogLine,
    Made,
    Open,
    Opened,
    Prepare,
    Refused,
)
from bushel.server import errors
from bushel.server.errors import ApiError
from bushel.server.observability import logs
from bushel.server.processes.backoff import Backoff, Outage
from bushel.server.processes.child import Child, cannot_spawn
from bushel.server.processes.turns import Turns

log = logging.getLogger(__name__)

Answer = tuple[Made | DecodedText, memoryview]
# For a grammar: real ones take milliseconds, the largest tool lists of agents 0.1 s.
CHECK_SECONDS = 1.5
# Without any sign of life, before a worker is taken for stopped. Busy machines let every process
# run at least once a second.
_FROZEN = 8.0
_DOUBT = 4.0  # the same, before it gets no more jobs; its clock is read after 2.5 s
_LOOK = 0.5  # seconds between looks at that
# Beside twice a job's own time, before its worker is given up though it is neither late nor known
# to be stopped, which takes 12 s.
_STARVED = 15.0
_STEP = 0.05  # seconds between looks at its clock, at least; systems tell hundredths
_MOST_TRIES = 2  # of a job whose worker was lost


@dataclass(eq=False)
class _Job:
    message: Prepare | Encode | Decode | Check
    seconds: float  # of the processor, that a worker may use
    owner: str
    group: str
    tries: int = 0  # of workers that were lost with it
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class _Jobs(asyncio.Queue[_Job]):
    def _init(self, maxsize: int) -> None:
        self._queue: Turns[_Job] = Turns()

    def _put(self, job: _Job) -> None:
        self._queue.put(job.owner, job.group, job)

    def _get(self) -> _Job:
        return self._queue.take()


class Pool:
    """`gate`: no job is begun while it is not set. label: of its workers, in the log."""

    def __init__(
        self, first: Open, size: int, seconds: float, gate: asyncio.Event, label: str = "worker"
    ):
        self.model_info: asyncio.Future[ModelInfo] = asyncio.get_running_loop().create_future()
        self.failed: str | None = None  # why the first worker could not be started
        self._first = first
        self._size = size
        self._seconds = seconds
        self._gate = gate
        self._label = label
        self._asked: set[_Job] = set()  # whoever asked waits for it
        self._jobs = _Jobs()  # of them, those that no worker has
        self._workers: set[_Worker] = set()
        self._started = 0
        self._reason = "requests cannot be prepared yet"  # why no worker is open
        self._backoffs: list[Backoff] = []  # one for each place

    @property
    def outage(self) -> Outage | None:
        """Why nothing can be prepared now; None if all is well."""
        if any(worker.open and not worker.dead and not worker.frozen for worker in self._workers):
            return None
        return Outage(self._reason, hopeless=any(backoff.hopeless for backoff in self._backoffs))

    def report(self) -> list[dict[str, Any]]:
        return [{"pid": worker.child.pid, "phase": worker.phase} for worker in self._workers]

    async def run(self) -> None:
        """Until cancelled, or until the first worker cannot open the checkpoint. May be run again
        after that.
        """
        self.failed, self._started, self._backoffs = None, 0, []
        if self.model_info.done() and self.model_info.exception() is not None:
            self.model_info = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._size):
                    tasks.create_task(self._keep_one())
                    await asyncio.wait(
                        [self.model_info]
                    )  # the others start when it is known to work
        finally:
            self.kill()
            await asyncio.gather(*(worker.child.close() for worker in self._workers))

    async def known(self) -> ModelInfo:
        """The facts, when they are known. (Whoever awaits the future itself and goes away takes
        it from everyone.)"""
        return await asyncio.shield(self.model_info)

    async def ask(
        self, message: Prepare | Encode | Decode | Check, owner: str = "", group: str = ""
    ) -> Answer:
        """ApiError if it is refused. Cancelling takes it out of the queue. Owners take turns, and
        an owner's groups."""
        if (outage := self.outage) is not None and outage.hopeless:
            raise errors.unavailable(outage.reason)
        seconds = self._seconds
        if isinstance(message, Check):
            seconds = min(seconds, CHECK_SECONDS)
        job = _Job(message, seconds, owner, group)
        self._asked.add(job)
        self._jobs.put_nowait(job)
        try:
            return await job.answer
        finally:
            self._asked.discard(job)

    def give_up(self, error: ApiError) -> None:
        """Whoever waits gets it instead of an answer."""
        if not self.model_info.done():
            self.model_info.set_exception(error)
            self.model_info.exception()  # there may be nobody
        for job in self._asked:
            _fail(job, error)

    def kill(self) -> None:
        for worker in self._workers:
            worker.child.kill()

    async def _keep_one(self) -> None:
        backoff = Backoff()
        self._backoffs.append(backoff)
        while self.failed is None:
            why, blameless = await self._one_life(backoff)
            wait = backoff.died(blameless=blameless)
            self._reason = "no worker can prepare requests"
            if wait:
                self._reason += f"; a new one starts in {wait:g} s"
            if self.failed is None:
                told = "a preparing %s %s; starting a new one in %g s"
                log.error(told, self._label, why, wait)
            self._turn_away()
            await asyncio.sleep(wait)

    async def _one_life(self, backoff: Backoff) -> tuple[str, bool]:
        """Start a worker and give it jobs until it is gone: how it ended, and for a job's sake."""
        worker = _Worker(self._label)
        self._started += 1
        try:
            worker.child = await Child.spawn(
                "bushel.chat.process", FromWorker, worker.hear, self._label
            )
        except OSError as error:
            return cannot_spawn(error), False
        self._workers.add(worker)
        try:
            worker.child.send(self._first)
            if not await self._open(worker):
                return worker.why or "ended before it was ready", False
            backoff.up()
            return await self._serve(worker)
        finally:
            worker.child.kill()
            await worker.child.close()
            self._workers.discard(worker)

    async def _open(self, worker: _Worker) -> bool:
        opened = await worker.next(None)
        if isinstance(opened, Opened):
            worker.open = True
            if not self.model_info.done():
                self.model_info.set_result(opened.model_info)
            return True
        if isinstance(opened, Failed):
            worker.why = f"could not open the checkpoint: {opened.reason}"
            if self._started == 1:  # whatever comes later may be for a while
                self.failed = opened.reason
                if not self.model_info.done():  # a drain may have ended first
                    self.model_info.set_exception(errors.unavailable("it cannot load the model"))
                    self.model_info.exception()  # it is told elsewhere too
        return False

    async def _serve(self, worker: _Worker) -> tuple[str, bool]:
        """Give it jobs until it is gone."""
        while (job := await self._next_job(worker)) is not None:
            await self._gate.wait()
            if job.answer.done():  # nobody waits for it any more
                continue
            if worker.doubtful:  # it goes on, or is replaced, before long
                self._jobs.put_nowait(job)
                await asyncio.sleep(_LOOK)
                continue
            try:
                worker.child.send(job.message)
            except (ValueError, TypeError, OverflowError) as error:  # it cannot even be written
                log.error("request %s cannot be sent to a worker: %s", job.message.id, error)
                _settle(job, None, worker.tail)
                continue
            worker.job = job
            answer = await worker.next(job.seconds)
            if answer is None:
                return self._lose(worker, job)
            worker.job = None
            _settle(job, answer, worker.tail)
        return worker.why or "was lost", False

    def _lose(self, worker: _Worker, job: _Job) -> tuple[str, bool]:
        """A worker that did not answer, with the job that it had."""
        job.tries += 1
        if job.tries < _MOST_TRIES and not worker.late:
            self._jobs.put_nowait(job)
        elif worker.dead or worker.late:
            _settle(job, None, worker.tail)
        else:
            _fail(job, errors.unavailable("two workers were stopped while they prepared this"))
        if worker.late:
            return "took too long and was killed", True
        return worker.why or "was lost with a request", not worker.frozen

    async def _next_job(self, worker: _Worker) -> _Job | None:
        """None if the worker is gone before there is one."""
        getting = asyncio.ensure_future(self._jobs.get())
        try:
            await worker.wait(getting, None)
            gone = worker.dead or worker.frozen
            if gone and getting.done():
                self._jobs.put_nowait(getting.result())
            return None if gone else getting.result()
        finally:
            getting.cancel()

    def _turn_away(self) -> None:
        """Those who wait, if there is nothing to wait for."""
        if (outage := self.outage) is not None and outage.hopeless:
            while not self._jobs.empty():
                _fail(self._jobs.get_nowait(), errors.unavailable(outage.reason))


class _Worker:
    """One child and what it said last."""

    child: Child[FromWorker]

    def __init__(self, label: str) -> None:
        self.label = label
        self.open = False
        self.job: _Job | None = None  # that it has
        self.late = False  # it has used all the time its job may
        self.why = ""  # it is of no use any more
        self.tail = memoryview(b"")
        self._messages: asyncio.Queue[tuple[FromWorker, memoryview]] = asyncio.Queue()

    def hear(self, message: FromWorker, tail: memoryview) -> None:
        if isinstance(message, LogLine):
            logs.relay(self.label, message.level, message.text)
        else:
            self._messages.put_nowait((message, tail))

    @property
    def phase(self) -> Literal["opening", "ready", "busy"]:
        return "opening" if not self.open else "ready" if self.job is None else "busy"

    @property
    def dead(self) -> bool:
        return self.child.ended.done()

    @property
    def doubtful(self) -> bool:
        """It may be stopped, and gets nothing to do until it says something."""
        return self.child.frozen > _DOUBT

    @property
    def frozen(self) -> bool:
        """It is stopped, and was given some time to go on."""
        return not self.dead and self.child.frozen > _FROZEN

    async def wait(self, what: asyncio.Future[Any], seconds: float | None) -> None:
        """Until it has come, or so long, or until the worker is gone."""
        loop = asyncio.get_running_loop()
        end = None if seconds is None else loop.time() + seconds
        while not what.done():
            left = _LOOK if end is None else min(_LOOK, end - loop.time())
            if self.dead or self.frozen or left <= 0:
                break
            await asyncio.wait(
                [what, self.child.ended], timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
        if self.frozen:
            self.why = "gave no sign of life and was killed"
        elif self.dead:
            self.why = f"ended with code {self.child.ended.result()}"

    async def next(self, seconds: float | None) -> FromWorker | None:
        """Its next message; None if it died, or did not answer in time and has to."""
        coming = asyncio.ensure_future(self._messages.get())
        try:
            if seconds is None:
                await self.wait(coming, None)
            else:
                await self._wait_by_its_clock(coming, seconds)
            if not coming.done():
                return None
            message, self.tail = coming.result()
            return message
        finally:
            coming.cancel()

    async def _wait_by_its_clock(self, what: asyncio.Future[Any], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + 2 * seconds + _STARVED
        await self.wait(what, min(_LOOK, seconds))  # most are done by then, and no clock was read
        if what.done() or self.dead:
            return
        began, before = loop.time(), await self.child.processor_seconds()
        left = seconds
        while left > 0 and loop.time() < end:
            await self.wait(what, max(left, _STEP))
            if what.done() or self.dead or self.frozen:
                return
            now = await self.child.processor_seconds()
            passed = loop.time() - began
            left = seconds - (passed if before is None or now is None else now - before)
        self.late = left <= 0 and not what.done()


def _settle(job: _Job, answer: FromWorker | None, tail: memoryview) -> None:
    if isinstance(answer, Made | DecodedText):
        with contextlib.suppress(asyncio.InvalidStateError):
            job.answer.set_result((answer, tail))
    else:
        refused = ApiError.refused(answer) if isinstance(answer, Refused) else None
        _fail(job, refused or _too_much(job.message))


def _fail(job: _Job, error: ApiError) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):
        job.answer.set_exception(error)


def _too_much(message: Prepare | Encode | Decode | Check) -> ApiError:
    if isinstance(message, Check):
        return ApiError(
            400,
            "The schema or grammar of the reply is too complex: it could not be compiled in time. "
            "Use a simpler one.",
            code="invalid_grammar",
        )
    return ApiError(400, TOO_MUCH, code="preparation_failed")
