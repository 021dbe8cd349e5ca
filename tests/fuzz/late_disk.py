"""A disk tier whose reads take some of the engine's steps, and whose writes take some time.

Steps and not seconds, so that a seed gives the same run on any machine.
"""

from __future__ import annotations

import random
import time
from typing import Any

from bushel.cache.prefix.disk import Disk, PendingRead
from bushel.cache.prefix.disk.folder import Folder


class SlowFolder(Folder):
    milliseconds = 0

    def write(self, name: str, draft: Any, stamp: int) -> None:
        time.sleep(random.uniform(0, self.milliseconds) / 1000)
        super().write(name, draft, stamp)


class LateDisk(Disk):
    def __init__(self, rng: random.Random, delays: tuple[int, ...], slow: int, *args: Any):
        super().__init__(*args)
        folder = self._folder
        folder.__class__ = SlowFolder
        folder.milliseconds = slow  # type: ignore[attr-defined]
        self._rng, self._delays = rng, delays
        self._late: list[tuple[int, PendingRead, PendingRead]] = []
        self._now = 0

    def read(self, name: str) -> PendingRead:
        real = super().read(name)
        while not real.done:
            super().wait(0.1)
        reading = PendingRead(name)
        self._late.append((self._now + self._rng.choice(self._delays), reading, real))
        self._deliver()
        return reading

    def wait(self, timeout: float) -> bool:
        """The next step comes at once."""
        return True

    def step(self) -> None:
        self._now += 1
        self._deliver()

    def _deliver(self) -> None:
        for _, reading, real in (it for it in self._late if it[0] <= self._now):
            reading.arrays, reading.start, reading.key = real.arrays, real.start, real.key
            reading.why, reading.done = real.why, True
        self._late = [it for it in self._late if it[0] > self._now]
