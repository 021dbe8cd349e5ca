"""Where requests wait until their model is loaded. Of the only model of a server it is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bushel.core.awake_clock import awake
from bushel.server import errors
from bushel.server.errors import ApiError
from bushel.server.observability.request_record import Record


class LoadGate:
    """Belongs to the event loop. knock: called when somebody begins to wait; raises what they are
    refused with, if they are.
    """

    def __init__(self, knock: Callable[[], None] | None = None):
        self.is_open = knock is None
        self._knock = knock
        self._waiting: dict[asyncio.Future[None], tuple[float, Record]] = {}  # since when, and who

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def since(self) -> float | None:
        """When the first of those who wait came."""
        return next((since for since, _ in self._waiting.values()), None)

    async def enter(self, record: Record) -> None:
        """ApiError if the model cannot be loaded."""
        if self.is_open or self._knock is None:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = awake(), record
        phase, record.phase = record.phase, "loading"
        try:
            self._knock()
            await turn
        finally:
            self._waiting.pop(turn, None)
        record.phase = phase

    def open(self) -> None:
        """All who wait go in, and count as work from now on."""
        self.is_open = True
        waiting, self._waiting = self._waiting, {}
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    def shut(self) -> None:
        self.is_open = False

    def cancel(self, record: Record) -> None:
        """It waits no longer, if it does."""
        for turn, (_, other) in self._waiting.items():
            if other is record and not turn.done():
                turn.set_exception(errors.cancelled())

    def refuse(self, error: ApiError) -> None:
        """Each of those who wait is told once."""
        waiting, self._waiting = self._waiting, {}
        for turn in waiting:
            if not turn.done():
                turn.set_exception(error)
