"""Keeps one engine process running: starts it, watches it, replaces it.

spawn ──> loading ──> ready ──> ended, or killed because it hangs
  ^                                │
  └────── after a while ───────────┘   longer each time, until one has lived for a minute
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from typing import Any, Protocol

from bushel.core.options import EngineOptions
from bushel.core.wire import (
    Beat,
    Failed,
    FromEngine,
    Message,
    Progress,
    Ready,
    Said,
    Start,
    Stop,
)
from bushel.server import logs
from bushel.server.child import Child

log = logging.getLogger(__name__)

_LOOK = 0.25  # seconds between looks at the heartbeat
_HEALTHY = 60.0  # seconds after which earlier deaths are forgiven
_LONGEST_WAIT = 30.0
_END = 8.0  # seconds to end in good order; the cache's files may need 5 of them
_SILENT = 5.0  # seconds without a beat, of which there is one a second


class Owner(Protocol):
    """Who uses the engine. All of this happens on the event loop."""

    def engine_ready(self) -> None: ...

    def engine_lost(self) -> None:
        """It is gone, and so is all it held; called for one that died while loading as well."""

    def engine_said(self, message: FromEngine) -> None: ...


class Supervisor:
    def __init__(
        self,
        options: EngineOptions,
        owner: Owner,
        hang_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.ready = False
        self.reason = "it is starting"  # why it is not ready
        self.failed: str | None = None  # why no engine can be started
        self.restarts = 0
        self.deaths = 0  # in a row
        self.stillborn = 0  # in a row, of engines that never were ready
        self.status: dict[str, Any] = {}  # of the engine, as it last said
        self.pid: int | None = None
        self._options = options
        self._owner = owner
        self._hang_seconds = hang_seconds
        self._clock = clock
        self._child: Child[FromEngine] | None = None
        self._beat: Beat | None = None
        self._heard = 0.0  # when
        self._closing = asyncio.Event()

    @property
    def worry(self) -> str | None:
        """Why nobody should count on the engine now; None if all is well."""
        if not self.ready:
            return self.reason
        silent = self._clock() - self._heard
        if silent > _SILENT:
            return f"it has given no sign of life for {silent:.0f} s"
        return None

    def send(self, message: Message, tail: memoryview | None = None) -> None:
        if self._child is not None:
            self._child.send(message, [] if tail is None else [tail])

    async def run(self) -> None:
        """Until `close`, or until the first engine says that it cannot be started at all."""
        while not self._closing.is_set():
            why = await self._one_life()
            if self._closing.is_set() or self.failed is not None:
                return
            self.deaths += 1
            self.restarts += 1
            self._owner.engine_lost()
            wait = 0.0 if self.deaths == 1 else min(_LONGEST_WAIT, 2.0 ** (self.deaths - 2))
            self.reason = f"{why}; a new one starts in {wait:g} s" if wait else why
            log.error("the engine %s; starting a new one in %g s", why, wait)
            await _until(self._closing, wait)

    async def close(self) -> None:
        self._closing.set()
        if self._child is not None:
            self._child.send(Stop())
            await self._child.close(_END)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    async def _one_life(self) -> str:
        """Start an engine and stay until it is gone; returns how it ended."""
        self._beat = None
        child: Child[FromEngine] = await Child.spawn(
            "bushel.engine.process", FromEngine, self._hear
        )
        self._child, self.pid = child, child.pid
        child.send(Start(self._options))
        began, hung = self._clock(), None
        assert child.ended is not None
        while not child.ended.done():
            looked = self._clock()
            await asyncio.wait([child.ended], timeout=_LOOK)
            if self._clock() - looked > 1 + _LOOK:  # this process itself was not running
                self._heard = self._clock()
            if hung is None and (hung := self._hang()) is not None:
                child.kill()
        was_ready, self.ready = self.ready, False
        self._child = self.pid = None
        if was_ready and self._clock() - began > _HEALTHY:
            self.deaths = 0
        self.stillborn = 0 if was_ready else self.stillborn + 1
        self.reason = hung or _how(child.ended.result())
        return self.reason

    def _hear(self, message: FromEngine, _: memoryview) -> None:
        self._heard = self._clock()
        if isinstance(message, Progress):
            self.reason = f"it is {message.text}"
            log.info("engine: %s", message.text)
        elif isinstance(message, Said):
            logs.relay("engine", message.level, message.text)
        elif isinstance(message, Failed):
            self.reason = message.reason
            if self.restarts == 0:
                self.failed = message.reason
        elif isinstance(message, Ready):
            self.ready, self.status = True, message.status
            self._owner.engine_ready()
        elif isinstance(message, Beat):
            self._beat, self.status = message, message.status
        self._owner.engine_said(message)

    def _hang(self) -> str | None:
        """Why the engine is thought to hang, if it is. Loading takes what it takes."""
        if not self.ready:
            return None
        silent = self._clock() - self._heard
        if silent > self._hang_seconds:
            return f"gave no sign of life for {silent:.0f} s and was killed"
        beat = self._beat
        if beat is not None and beat.busy > max(self._hang_seconds, beat.patience):
            return f"has been in one step for {beat.busy:.0f} s and was killed"
        return None


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


async def _until(event: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait([waiting], timeout=seconds)
    waiting.cancel()
