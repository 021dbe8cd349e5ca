"""When a child that died is replaced, and what is said to clients meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_HEALTHY = 60.0  # seconds after which earlier deaths are forgiven
_LONGEST_WAIT = 30.0
_HOPELESS = 3  # children that died in a row before they were up


@dataclass(frozen=True)
class Outage:
    """Why requests are not served now. They wait for its end, unless it is `hopeless`."""

    reason: str
    hopeless: bool = False


def worst(*outages: Outage | None) -> Outage | None:
    """Of several at once: a hopeless one, or the first."""
    present = [outage for outage in outages if outage is not None]
    return max(present, key=lambda outage: outage.hopeless, default=None)


class Backoff:
    """At once for the first death in a row, then after 1, 2, 4 … seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._deaths = 0  # in a row
        self._stillborn = 0  # in a row, of children that never were up
        self._up: float | None = None  # since when

    @property
    def hopeless(self) -> bool:
        """So many died before they were up that nobody should wait for the next one."""
        return self._stillborn >= _HOPELESS

    def up(self) -> None:
        """The child can do what it is for."""
        self._up, self._stillborn = self._clock(), 0

    def died(self, *, blameless: bool = False) -> float:
        """Seconds to wait before the next one. Blameless: killed because of what it was given."""
        up, self._up = self._up, None
        if up is None:
            self._stillborn += 1
        elif self._clock() - up > _HEALTHY:
            self._deaths = 0
        if blameless:
            return 0.0
        self._deaths += 1
        return 0.0 if self._deaths == 1 else min(_LONGEST_WAIT, 2.0 ** (self._deaths - 2))
