"""The front's event loop: uvloop, with timers that do not go off because the machine slept.

libuv's clock runs on while a Mac sleeps. At wake all its timers would go off at once: streams
time out, connections are cut off, workers are given up. Here a timer that goes off too early
by `awake_clock` is set again for what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple

import uvloop

from bushel.core.awake_clock import LOOK, AwakeClock, awake

Ts = TypeVarTuple("Ts")
# Seconds that do not matter: libuv counts in milliseconds, from when its turn began.
_EARLY = 0.01


class _Timer(asyncio.TimerHandle):
    """One that goes by the loop's clock, whatever libuv's says."""

    def __init__(
        self,
        loop: EventLoop,
        delay: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: Context | None,
    ):
        super().__init__(loop.time() + delay, callback, args, loop, context)
        self._owner = loop
        self._set = loop.uv_timer(delay, self._go_off)

    def cancel(self) -> None:
        self._set.cancel()
        asyncio.Handle.cancel(self)  # TimerHandle's tells loops of asyncio's own

    def _go_off(self) -> None:
        left = self.when() - self._owner.time()
        if left > _EARLY:
            self._set = self._owner.uv_timer(left, self._go_off)
        elif not self.cancelled():
            self._run()


class EventLoop(uvloop.Loop):
    def __init__(self, clock: AwakeClock = awake):
        self._awake = clock
        super().__init__()
        self._look()

    def time(self) -> float:
        return self._awake()

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return _Timer(self, when - self.time(), callback, args, context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return _Timer(self, delay, callback, args, context)

    def uv_timer(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """As libuv counts."""
        return super().call_later(delay, callback)

    def _look(self) -> None:
        self.time()
        self.uv_timer(LOOK / 2, self._look)
