"""Keeps one engine process running: starts it, watches it, replaces it.

spawn ──> loading ──> ready ──> ended, or killed because it hangs
  ^                                │
  └────── after a while ───────────┘   longer each time, until one has lived for a minute
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

from bushel.core import BushelError
from bushel.core.awake_clock import awake
from bushel.core.load_progress import loaded_words
from bushel.core.options import EngineOptions
from bushel.core.status import EngineStatus
from bushel.core.wire import (
    AskLimits,
    Beat,
    Failed,
    FromEngine,
    LoadedBytes,
    LogLine,
    MachineLimits,
    Progress,
    Ready,
    Start,
    Status,
    Stop,
    WireMessage,
)
from bushel.server.observability import logs
from bushel.server.processes.backoff import Backoff, Outage
from bushel.server.processes.child import Child, cannot_spawn

log = logging.getLogger(__name__)

_LOOK = 0.25  # seconds between looks at the heartbeat
_END = 8.0  # seconds to end in good order; the cache's files may need 5 of them
_SILENT = 5.0  # seconds without a beat, of which there is one a second


class Owner(Protocol):
    """Who uses the engine. All of this happens on the event loop."""

    def engine_ready(self) -> None: ...

    def engine_lost(self, was_ready: bool) -> None:
        """It is gone, and so is all it held; one that was not ready held nothing."""

    def engine_said(self, message: FromEngine) -> None: ...


class EngineMemory(Protocol):
    """Where an engine's memory comes from. All of this happens on the event loop."""

    @property
    def descriptors(self) -> Sequence[int]:
        """That the engine is to hold, for as long as it lives."""

    async def allot(self, limits: MachineLimits) -> int:
        """Bytes that a new engine may use, as soon as it may; BushelError if it never may."""

    def heard(self, status: EngineStatus, send: Callable[[WireMessage], None]) -> None:
        """What the engine said of itself, and how to answer."""


class Supervisor:
    """label: what the engine is called in the log. memory: None: the engine takes what there is."""

    def __init__(
        self,
        options: EngineOptions,
        owner: Owner,
        hang_seconds: float,
        clock: Callable[[], float] = awake,
        *,
        label: str = "engine",
        memory: EngineMemory | None = None,
    ):
        self.ready = False
        self.reason = "it is starting"  # why it is not ready; for clients, so without paths
        self.failed: str | None = None  # why the first engine could not be started
        self.restarts = 0
        self.ending: Literal["died", "hung"] = "died"  # of the last engine
        self.status: EngineStatus | None = None  # as the engine last said
        self.pid: int | None = None
        self._options = options
        self._owner = owner
        self._label = label
        self._memory = memory
        self._hang_seconds = hang_seconds
        self._clock = clock
        self._backoff = Backoff(clock)
        self._child: Child[FromEngine] | None = None
        self._beat: Beat | None = None
        self._failure: str | None = None  # as the present engine said, in words for clients
        self._heard = 0.0  # when
        self._closing = asyncio.Event()
        self._starting: asyncio.Task[None] | None = None  # waits for the engine's memory
        self._loading = logs.load_progress(Path(options.model).name, label)

    @property
    def outage(self) -> Outage | None:
        """Why nobody should count on the engine now; None if all is well."""
        if not self.ready:
            return Outage(self.reason, hopeless=self._backoff.hopeless)
        silent = self._clock() - self._heard
        if silent > _SILENT:
            return Outage(f"it has given no sign of life for {silent:.0f} s")
        return None

    def send(self, message: WireMessage, tail: memoryview | None = None) -> None:
        if self._child is not None:
            self._child.send(message, [] if tail is None else [tail])

    async def run(self) -> None:
        """Until `close`, or until the first engine says that it cannot be started at all. May be
        run again after that.
        """
        self.failed, self.restarts, self.reason = None, 0, "it is starting"
        self._backoff = Backoff(self._clock)
        self._closing.clear()
        while not self._closing.is_set():
            was_ready, why = await self._one_life()
            if self._closing.is_set() or self.failed is not None:
                return
            self.restarts += 1
            wait = self._backoff.died()
            self.reason = f"{why}; a new one starts in {wait:g} s" if wait else why
            self._owner.engine_lost(was_ready)
            log.error("the %s %s; starting a new one in %g s", self._label, why, wait)
            await _until(self._closing, wait)

    async def close(self) -> None:
        """One that is ready ends in good order; before that it has nothing to put in order."""
        self._closing.set()
        if self._child is not None:
            self._child.send(Stop())
            await self._child.close(_END if self.ready else 0.0)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    async def _one_life(self) -> tuple[bool, str]:
        """Start an engine and stay until it is gone; whether it was ready, and how it ended."""
        self._beat = self._failure = None
        try:
            child: Child[FromEngine] = await Child.spawn(
                "bushel.engine.process",
                FromEngine,
                self._hear,
                self._label,
                () if self._memory is None else self._memory.descriptors,
            )
        except OSError as error:
            self.ending = "died"
            return False, cannot_spawn(error)
        self._child, self.pid = child, child.pid
        if self._closing.is_set():  # `close` did not see it
            child.kill()
        if self._memory is None:
            child.send(Start(self._options))
        else:
            child.send(AskLimits(self._options.beside))
        hung = await self._watch(child)
        logs.show("")  # it may have died while it was loading
        if self._starting is not None:
            self._starting.cancel()
        was_ready, self.ready = self.ready, False
        self._child = self.pid = None
        self.ending = "died" if hung is None else "hung"
        self.reason = self._failure or hung or _how(child.ended.result())
        return was_ready, self.reason

    async def _watch(self, child: Child[FromEngine]) -> str | None:
        """Until it is gone; returns why it was killed, if it was."""
        hung = None
        while not child.ended.done():
            await asyncio.wait([child.ended], timeout=_LOOK)
            if hung is None and (hung := self._hang() or self._frozen(child)) is not None:
                child.kill()
        return hung

    async def _start(self, child: Child[FromEngine], limits: MachineLimits) -> None:
        """Once there is memory for it."""
        assert self._memory is not None
        self.reason = "it waits for memory"
        try:
            limit = await self._memory.allot(limits)
        except (BushelError, OSError) as error:
            self._fail(str(error))
            child.kill()
        else:
            child.send(Start(replace(self._options, memory_limit=limit)))

    def _fail(self, reason: str) -> None:
        self.reason = self._failure = "could not load the model; the log says why"
        if self.restarts == 0:  # whatever comes later may be for a while
            self.failed = reason  # whoever runs this tells it
        else:
            log.error("%s: %s", self._label, reason)

    def _hear(self, message: FromEngine, _: memoryview) -> None:
        self._heard = self._clock()
        if isinstance(message, Progress):
            self.reason = f"it is {message.text}"
            log.info("%s: %s", self._label, message.text)
        elif isinstance(message, LoadedBytes):
            self.reason = f"it is loading weights, {loaded_words(message.done, message.total)}"
            self._loading(message.done, message.total)
        elif isinstance(message, LogLine):
            logs.relay(self._label, message.level, message.text)
        elif isinstance(message, Failed):
            self._fail(message.reason)
        elif isinstance(message, MachineLimits):
            assert self._child is not None
            self._starting = asyncio.create_task(self._start(self._child, message))
        elif isinstance(message, Ready):
            self.ready, self.status = True, message.status
            self._backoff.up()
            self._owner.engine_ready()
        elif isinstance(message, Beat):
            self._beat = message
        if isinstance(message, Ready | Beat | Status):
            self.status = message.status
            if self._memory is not None:
                self._memory.heard(message.status, self.send)
        self._owner.engine_said(message)

    def _hang(self) -> str | None:
        """Why the engine is thought to hang, if it is. Loading takes what it takes."""
        if not self.ready:
            return None
        silent = self._clock() - self._heard
        if silent > self._hang_seconds:
            return _silent(silent)
        beat = self._beat
        if beat is not None and beat.busy > max(self._hang_seconds, beat.patience):
            return f"has been in one step for {beat.busy:.0f} s and was killed"
        return None

    def _frozen(self, child: Child[FromEngine]) -> str | None:
        """One that is stopped while it loads gets nowhere, however long it may take."""
        return _silent(child.frozen) if child.frozen > self._hang_seconds else None


def _silent(seconds: float) -> str:
    return f"gave no sign of life for {seconds:.0f} s and was killed"


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
