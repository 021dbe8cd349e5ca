"""What the front has asked the engine about itself, and has not heard yet.

One status answers all who asked for one. Clearing the cache is answered one by one, so that
nobody is told of a clearing that came before requests it was meant for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from bushel.core.status import EngineStatus
from bushel.core.wire import AskStatus, ClearCache, Cleared, Status, WireMessage
from bushel.server import errors

_STATUS_SECONDS = 2.0
# The engine listens between two steps, and a step with new kernels takes long.
_CLEAR_SECONDS = 60.0


class EngineQueries:
    """Belongs to the event loop. ApiError if the engine is lost meanwhile."""

    def __init__(self, send: Callable[[WireMessage], None]):
        self._send = send
        self._status: list[asyncio.Future[EngineStatus]] = []
        self._clear: deque[asyncio.Future[EngineStatus]] = deque()

    async def status(self) -> EngineStatus:
        """TimeoutError if it is too busy to answer."""
        self._status.append(answer := asyncio.get_running_loop().create_future())
        self._send(AskStatus())
        async with asyncio.timeout(_STATUS_SECONDS):
            return await answer

    async def clear(self) -> EngineStatus:
        """The status behind it."""
        self._clear.append(answer := asyncio.get_running_loop().create_future())
        self._send(ClearCache())
        try:
            async with asyncio.timeout(_CLEAR_SECONDS):
                return await answer
        except TimeoutError:
            raise errors.unavailable("it is busy, and clears its cache when it is not") from None

    def hear(self, message: Status | Cleared) -> None:
        if isinstance(message, Cleared):
            answered = [self._clear.popleft()] if self._clear else []
        else:
            answered, self._status = self._status, []
        for future in answered:
            if not future.done():
                future.set_result(message.status)

    def lose(self) -> None:
        """The engine is gone, and answers nothing of this."""
        lost = [*self._status, *self._clear]
        self._status, self._clear = [], deque()
        for future in lost:
            if not future.done():
                future.set_exception(errors.restarted())
