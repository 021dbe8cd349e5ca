"""All that one HTTP request asked for, as one stream of events: a completion may have many prompts.

Choices are numbered prompt by prompt: choice c of prompt p is p x n + c.

    an event ──> Live ──> wake ──> Ticket.take ──> the reader

There is no task between an event and its reader, and no buffer either. What happens while the
reader is held stays with its ticket and is folded when it goes on; so a slow client gets fewer and
larger batches.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from bushel.core import Event, Usage
from bushel.server.service.job import GenerationJob
from bushel.server.service.ticket import SLICE_TOKENS, Drafts, weight

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.ticket import Ticket


class MultiTicket:
    """Entering opens every job, or raises what the first failing one raised and opens none.
    Leaving aborts what still runs. One ticket that is lost loses all.
    """

    def __init__(self, service: Service, jobs: Sequence[GenerationJob]):
        self._service = service
        group = uuid.uuid4().hex
        self._jobs = [replace(job, group=group) for job in jobs]
        self._stack = ExitStack()
        self._tickets: dict[int, Ticket] = {}
        self._reading: deque[tuple[Ticket, int]] = deque()  # with its first choice's number
        self._loop = asyncio.get_running_loop()
        self._read: Callable[[list[Event]], None] | None = None
        self._ended = self._loop.create_future()
        self._held = False
        self._cut = False  # more is there than the last batch took
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

    @property
    def drafts(self) -> Drafts:
        accepted, rejected = zip(*(ticket.drafts for ticket in self._tickets.values()), strict=True)
        return Drafts(sum(accepted), sum(rejected))

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
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    async def _open(self, at: int) -> None:
        ticket = await self._service.open(self._jobs[at], self.wake)
        self._tickets[at] = self._stack.enter_context(ticket)

    async def _open_all(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for at in range(len(self._jobs)):
                    group.create_task(self._open(at))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    # -- batches -------------------------------------------------------------------------------

    async def deliver(self, read: Callable[[list[Event]], None]) -> None:
        """Call `read` with every batch, as it comes, until all has been said: what happened since
        the last one, or a slice of it, after which others have their turn. Raises what a lost
        ticket, or `read`, raised. Being cancelled loses nothing that was not read.
        """
        self._read, self._ended = read, self._loop.create_future()
        self.wake()
        try:
            await self._ended
        finally:
            self._read = None

    def wake(self) -> None:
        """There may be something new: have it read."""
        if self._held or self._read is None or self._ended.done():
            return
        try:
            if batch := self._take():
                self._read(batch)
        except Exception as error:
            self._ended.set_exception(error)
            return
        if self._cut or self._failure is not None:
            self._loop.call_soon(self.wake)
        elif not self._reading:
            self._ended.set_result(None)

    def hold(self) -> None:
        """Nothing is read until `release`."""
        self._held = True

    def release(self) -> None:
        self._held = False
        self._loop.call_soon(self.wake)

    def _take(self) -> list[Event]:
        """One slice of what is there, beginning where the last one ended."""
        batch: list[Event] = []
        room, self._cut = SLICE_TOKENS, False
        for _ in range(len(self._reading)):
            if self._failure is not None:
                break
            if room <= 0:
                self._cut = True
                break
            ticket, first = self._reading[0]
            try:
                events = ticket.take(room, first)
            except Exception as error:
                self._failure = error
                break
            if ticket.done:
                self._reading.popleft()
            else:
                self._reading.rotate(-1)
                self._cut = self._cut or ticket.more
            for event in events:
                room -= weight(event)
            batch += events
        if not batch and self._failure is not None:
            raise self._failure
        return batch
