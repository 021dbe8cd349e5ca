"""How many requests of batches are on their way at once: few while somebody waits for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

# Live requests for each of a batch beside them. One more than the engine lets decode
# (`engine.slot_sharing`) is on its way, so that its prompt is prepared by the time it may run.
_LIVE_EACH = 8
_LOOK = 0.1  # seconds until the next look at how many there are


class InFlight:
    """Belongs to the event loop. live: requests that somebody waits for."""

    def __init__(self, most: int, live: Callable[[], int]):
        self._most = most
        self._live = live
        self._count = 0
        self._turn = asyncio.Lock()  # who came first goes first
        self._left = asyncio.Event()

    @property
    def _allowed(self) -> int:
        live = self._live()
        return min(self._most, 1 + max(1, live // _LIVE_EACH)) if live else self._most

    async def enter(self) -> None:
        async with self._turn:
            while self._count >= self._allowed:
                self._left.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await self._left.wait()
            self._count += 1

    def leave(self) -> None:
        self._count -= 1
        self._left.set()
