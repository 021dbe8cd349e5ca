"""Workers that prepare requests, one job at a time each.

A job that takes too long, or takes its worker down, costs that worker its life and nobody else
anything: a new one takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

from bushel.core.options import Facts
from bushel.core.wire import (
    Check,
    Decode,
    Encode,
    Failed,
    FromWorker,
    Made,
    Open,
    Opened,
    Prepare,
    Refused,
    Said,
    Text,
)
from bushel.server import logs
from bushel.server.child import Child
from bushel.server.errors import ApiError

log = logging.getLogger(__name__)

Answer = tuple[Made | Text, memoryview]
# For a grammar: real ones take milliseconds, the largest tool lists of agents 0.1 s.
CHECK_SECONDS = 1.5
_PAUSE = 1.0  # seconds before a worker that did not even start is tried again


@dataclass(eq=False)
class _Job:
    message: Prepare | Encode | Decode | Check
    seconds: float  # that a worker may take
    deaths: int = 0  # of workers that had it
    answer: asyncio.Future[Answer] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Pool:
    """`gate`: no job is begun while it is not set."""

    def __init__(self, first: Open, size: int, seconds: float, gate: asyncio.Event):
        self.facts: asyncio.Future[Facts] = asyncio.get_running_loop().create_future()
        self.failed: str | None = None  # why no worker can be started
        self._first = first
        self._size = size
        self._seconds = seconds
        self._gate = gate
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._workers: set[_Worker] = set()

    async def run(self) -> None:
        """Until cancelled, or until the first worker cannot open the checkpoint."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._size):
                    tasks.create_task(self._keep_one())
                    await asyncio.wait([self.facts])  # the others start when it is known to work
        finally:
            await asyncio.gather(*(worker.child.close() for worker in self._workers))

    async def ask(self, message: Prepare | Encode | Decode | Check) -> Answer:
        """ApiError if it is refused. Cancelling takes it out of the queue."""
        seconds = self._seconds
        if isinstance(message, Check):
            seconds = min(seconds, CHECK_SECONDS)
        job = _Job(message, seconds)
        self._jobs.put_nowait(job)
        return await job.answer

    def kill(self) -> None:
        for worker in self._workers:
            worker.child.kill()

    async def _keep_one(self) -> None:
        while self.failed is None:
            worker = _Worker()
            worker.child = await Child.spawn("bushel.chat.process", FromWorker, worker.hear)
            self._workers.add(worker)
            worker.child.send(self._first)
            try:
                await self._serve(worker)
            finally:
                worker.child.kill()
            await worker.child.close()
            self._workers.discard(worker)

    async def _serve(self, worker: _Worker) -> None:
        """Give it jobs until it dies."""
        opened = await worker.next(None)
        if isinstance(opened, Failed):
            self.failed = opened.reason
        if isinstance(opened, Opened):
            if not self.facts.done():
                self.facts.set_result(opened.facts)
        else:
            if not self.facts.done() and self.failed is not None:
                self.facts.set_exception(ApiError(503, self.failed, code="engine_unavailable"))
                self.facts.exception()  # it is told elsewhere too
            if self.failed is None:
                log.error("a preparing worker did not start")
            await asyncio.sleep(_PAUSE)
            return
        while (job := await self._next_job(worker)) is not None:
            if job.answer.done():  # nobody waits for it any more
                continue
            await self._gate.wait()
            try:
                worker.child.send(job.message)
            except (ValueError, TypeError, OverflowError) as error:  # it cannot even be written
                log.error("request %s cannot be sent to a worker: %s", job.message.id, error)
                _settle(job, None, worker.tail)
                continue
            said = await worker.next(job.seconds)
            again = job.deaths == 0 and not isinstance(job.message, Check)
            if said is None and worker.dead and again:
                job.deaths += 1  # it may not have been its fault
                self._jobs.put_nowait(job)
            elif not job.answer.done():
                _settle(job, said, worker.tail)
            if said is None:
                return

    async def _next_job(self, worker: _Worker) -> _Job | None:
        """None if the worker dies before there is one."""
        getting = asyncio.ensure_future(self._jobs.get())
        try:
            await asyncio.wait([getting, worker.ended], return_when=asyncio.FIRST_COMPLETED)
            if worker.dead and getting.done():
                self._jobs.put_nowait(getting.result())
            return None if worker.dead else getting.result()
        finally:
            getting.cancel()


class _Worker:
    """One child and what it said last."""

    child: Child[FromWorker]

    def __init__(self) -> None:
        self.tail = memoryview(b"")
        self._said: asyncio.Queue[tuple[FromWorker, memoryview]] = asyncio.Queue()

    def hear(self, message: FromWorker, tail: memoryview) -> None:
        if isinstance(message, Said):
            logs.relay("worker", message.level, message.text)
        else:
            self._said.put_nowait((message, tail))

    @property
    def ended(self) -> asyncio.Task[int]:
        assert self.child.ended is not None
        return self.child.ended

    @property
    def dead(self) -> bool:
        return self.ended.done()

    async def next(self, seconds: float | None) -> FromWorker | None:
        """Its next message; None if it died, or did not answer in time and has to."""
        said = asyncio.ensure_future(self._said.get())
        try:
            await asyncio.wait(
                [said, self.ended], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not said.done():
                return None
            message, self.tail = said.result()
            return message
        finally:
            said.cancel()


def _settle(job: _Job, said: FromWorker | None, tail: memoryview) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):
        if isinstance(said, Made | Text):
            job.answer.set_result((said, tail))
        elif isinstance(said, Refused):
            job.answer.set_exception(ApiError.refused(said))
        else:
            job.answer.set_exception(_too_much(job.message))


def _too_much(message: Prepare | Encode | Decode | Check) -> ApiError:
    if isinstance(message, Check):
        return ApiError(
            400,
            "The schema or grammar of the reply is too complex: it could not be compiled in time. "
            "Use a simpler one.",
            code="invalid_grammar",
        )
    return ApiError(
        400,
        "The request could not be prepared: its template, text or media took too long or more "
        "than a worker could take.",
        code="preparation_failed",
    )
