"""A clock that stands still while the machine sleeps or the process is stopped.

Clocks disagree about sleep. On macOS Python's stand still (`mach_absolute_time`), and libuv's runs
on (`mach_continuous_time`). A process that is stopped, or whose machine is paused, finds that all
of them ran on. So whoever looked a moment ago and finds much time gone was not running, and nor was
what it waits for: deadlines that go by this clock move on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK = 1.0  # seconds between looks that somebody has to take, for it to tell right
# Seconds between two looks that are not counted. Busy machines keep a thread waiting for one.
_AWAY = 2 * LOOK


class AwakeClock:
    """Any thread may call it. A look is a call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._looked = clock()
        self._away = 0.0  # seconds, so far
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            now = self._clock()
            if now - self._looked > _AWAY:
                self._away += now - self._looked
            self._looked = now
            return now - self._away


awake = AwakeClock()  # of this process; who looks is said where it is used
