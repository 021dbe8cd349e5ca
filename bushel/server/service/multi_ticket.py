"""All that one HTTP request asked for, as one stream of events: a completion may have many prompts.

Choices are numbered prompt by prompt: choice c of prompt p is p x n + c.

There is no buffer here. What has happened stays with its ticket until the reader of this stream
wants more, and is folded then; so a slow reader gets fewer and larger batches.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from bushel.core import Event, Usage
from bushel.server.service.job import GenerationJob
from bushel.server.service.ticket import SLICE_TOKENS, weight

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.ticket import Ticket


class MultiTicket:
    """Entering opens every job, or raises what the first failing one raised and opens none.
    Leaving aborts what still runs.

    An async iterator of batches: what came since the last one, or a slice of it, after which others
    have their turn on the event loop. One ticket that is lost loses all. Waiting may be cancelled;
    nothing that happened is lost by that.
    """

    def __init__(self, service: Service, jobs: Sequence[GenerationJob]):
        self._service = service
        group = uuid.uuid4().hex
        self._jobs = [replace(job, group=group) for job in jobs]
        self._stack = ExitStack()
        self._tickets: dict[int, Ticket] = {}
        self._reading: deque[tuple[Ticket, int]] = deque()  # with its first choice's number
        self._wake = asyncio.Event()
        self._cut = False  # more is there than the last batch took
        self._interrupted = False
        self._failure: Exception | None = None

    @property
    def tickets(self) -> list[Ticket]:
        """In the order of the jobs."""
        return [self._tickets[at] for at in range(len(self._jobs))]

    @property
    def id(self) -> str:
        return self._tickets[0].id

    @property
    def created(self) -> int:
        return self._tickets[0].created

    @property
    def choices(self) -> int:
        return sum(job.params.n for job in self._jobs)

    def usage(self, completion_tokens: int) -> Usage:
        tickets = self._tickets.values()
        return Usage(
            sum(len(ticket.prompt_ids) for ticket in tickets),
            completion_tokens,
            sum(ticket.cached_tokens for ticket in tickets),
        )

    async def __aenter__(self) -> MultiTicket:
        try:
            if len(self._jobs) == 1:
                await self._open(0)
            else:
                await self._open_all()
        except BaseException as error:
            self._stack.__exit__(type(error), error, error.__traceback__)
            raise
        first = 0
        for job, ticket in zip(self._jobs, self.tickets, strict=True):
            self._reading.append((ticket, first))
            first += job.params.n
        self._wake.set()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    async def _open(self, at: int) -> None:
        ticket = await self._service.open(self._jobs[at], self._wake)
        self._tickets[at] = self._stack.enter_context(ticket)

    async def _open_all(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for at in range(len(self._jobs)):
                    group.create_task(self._open(at))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def __aiter__(self) -> MultiTicket:
        return self

    async def __anext__(self) -> list[Event]:
        """Empty if it was interrupted."""
        if self._cut:  # others first; nothing is taken yet, so being cancelled here loses nothing
            await asyncio.sleep(0)
        elif self._reading and self._failure is None:
            await self._wake.wait()
        while not (batch := self._take()) and not self._interrupted:
            await self._wake.wait()
        self._interrupted = False
        return batch

    def interrupt(self) -> None:
        """Whoever waits for a batch gets an empty one."""
        self._interrupted = True
        self._wake.set()

    def _take(self) -> list[Event]:
        """One slice of what is there, beginning where the last one ended."""
        self._wake.clear()
        batch: list[Event] = []
        room = SLICE_TOKENS
        for _ in range(len(self._reading)):
            if self._failure is not None or room <= 0:
                break
            ticket, first = self._reading.popleft()
            try:
                events = ticket.take(room, first)
            except Exception as error:
                self._failure = error
                break
            if not ticket.done:
                self._reading.append((ticket, first))
            for event in events:
                room -= weight(event)
                batch.append(event)
        self._cut = any(ticket.more for ticket, _ in self._reading)
        if not batch and self._failure is not None:
            raise self._failure
        if not batch and not self._reading:
            raise StopAsyncIteration
        return batch
