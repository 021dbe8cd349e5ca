"""What an `LLM` claims of the machine's memory, among the servers and scripts of this user.

It claims what it needs to hold, from before its weights are read until it is closed or its process
ends. What it may use is whatever the others were not granted; it looks at that while it works.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bushel.core import BushelError
from bushel.core.checkpoint import loaded_bytes
from bushel.core.held_files import runtime_folder
from bushel.core.options import EngineOptions
from bushel.engine import device_memory
from bushel.models.device import ON_CPU
from bushel.server.models.claims import (
    CROWDED,
    SLACK,
    ClaimBusy,
    Claims,
    MemoryTicket,
    SeenClaim,
    crowded_out,
    need_of,
)

log = logging.getLogger(__name__)

_LOOK = 0.25  # seconds between two looks at what others claim
_guard = threading.Lock()  # of this process's claims: models may be on several threads


@functools.cache
def _claims(folder: Path, process: int) -> Claims:
    """One for all models of a process, which do not wait for each other."""
    return Claims(folder)


class ScriptClaim:
    """Belongs to whoever owns the engine."""

    def __init__(self) -> None:
        self._claims: Claims | None = None
        self._ticket: MemoryTicket | None = None
        self._machine = self._most = self._limit = 0
        self._looked = 0.0

    def allot(self, options: EngineOptions, limit: int) -> int:
        """Bytes that an engine which may use so many may use beside others, once they leave it what
        it needs. ModelError if they never will.
        """
        self._most = self._limit = limit
        self._machine = max(limit, device_memory.memory_limit(options.beside))
        try:
            self._claims = _claims(runtime_folder(), os.getpid())
        except BushelError as error:  # a script may run where nothing can be written
            log.warning("%s", error)
            return limit
        weights = loaded_bytes(options.model, options.dtype, widens=ON_CPU)
        need = need_of(weights, limit)
        began = time.monotonic()
        while (others := self._try(Path(options.model).name, need)) is not None:
            late = time.monotonic() - began > CROWDED
            if late and need > self._machine - (needed := _needed(others)):
                self.release()
                raise crowded_out(need, needed, self._machine)
            time.sleep(_LOOK / 5)
        return self._limit

    def _try(self, name: str, need: int) -> list[SeenClaim] | None:
        """None: it is granted. Otherwise those who have too much."""
        assert self._claims is not None
        try:
            with _guard, self._claims.locked():
                if self._ticket is None:
                    self._ticket = self._claims.add(name, need)
                others = [claim for claim in self._claims.all() if not claim.own]
                if self._machine - _granted(others) < need:
                    return others
                self._ticket.grant(need)
                self._limit = self._beside(others)
        except ClaimBusy:
            return []
        return None

    def _beside(self, others: Sequence[SeenClaim]) -> int:
        assert self._ticket is not None
        return min(self._most, max(self._ticket.record.need, self._machine - _granted(others)))

    def look(self) -> int | None:
        """Another limit, if others have come or gone since the last look."""
        now = time.monotonic()
        if self._claims is None or self._ticket is None or now - self._looked < _LOOK:
            return None
        self._looked = now
        try:
            with _guard, self._claims.locked():
                others = [claim for claim in self._claims.all() if not claim.own]
        except OSError:
            return None
        limit = self._beside(others)
        if abs(limit - self._limit) <= self._limit // SLACK:
            return None
        self._limit = limit
        return limit

    def release(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None and self._claims is not None:
            with _guard:
                self._claims.release(ticket)


def _granted(claims: Sequence[SeenClaim]) -> int:
    return sum(claim.record.granted for claim in claims)


def _needed(claims: Sequence[SeenClaim]) -> int:
    return sum(claim.record.need for claim in claims if claim.record.granted)
