"""All tickets of one HTTP request as one: a completion may have many prompts.

Choices are numbered prompt by prompt: choice c of prompt p is p x n + c.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
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

    Iterating yields what came since the last time, as a ticket does; one ticket that is lost
    loses all. Leaving aborts what still runs.
    """

    def __init__(self, service: Service, jobs: Sequence[GenerationJob]):
        self._service = service
        group = uuid.uuid4().hex
        self._jobs = [replace(job, group=group) for job in jobs]
        self._stack = AsyncExitStack()
        self._tickets: dict[int, Ticket] = {}
        self._queue: asyncio.Queue[list[Event] | Exception | None] = asyncio.Queue(len(jobs))
        self._pumps: list[asyncio.Task[None]] = []
        self._running = len(jobs)
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
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pump in self._pumps:
            pump.cancel()
        await self._stack.__aexit__(kind, error, trace)

    async def _open(self, at: int) -> None:
        ticket = await self._service.open(self._jobs[at])
        self._tickets[at] = await self._stack.enter_async_context(ticket)

    async def _open_all(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for at in range(len(self._jobs)):
                    group.create_task(self._open(at))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        self._pumps = [
            asyncio.create_task(self._pump(at, ticket)) for at, ticket in enumerate(self.tickets)
        ]

    async def _pump(self, at: int, ticket: Ticket) -> None:
        first = sum(job.params.n for job in self._jobs[:at])
        try:
            async for events in ticket:
                moved = [event._replace(choice=first + event.choice) for event in events]
                await self._queue.put(moved)
        except Exception as error:
            await self._queue.put(error)
            return
        self._running -= 1
        if not self._running:
            await self._queue.put(None)

    def __aiter__(self) -> MultiTicket:
        return self

    async def __anext__(self) -> list[Event]:
        """May be cancelled while it waits; nothing is lost."""
        if not self._pumps:
            return await anext(self._tickets[0])
        if not self._queue.empty():  # others first
            await asyncio.sleep(0)
        found: list[Event] = []
        tokens = 0
        while not self._failure:
            if found and (self._queue.empty() or tokens >= SLICE_TOKENS):
                return found
            got = await self._queue.get() if not found else self._queue.get_nowait()
            if isinstance(got, list):
                found.extend(got)
                tokens += sum(map(weight, got))
            else:
                self._failure = StopAsyncIteration() if got is None else got
                if found:
                    return found
        raise self._failure
