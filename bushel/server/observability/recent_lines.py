"""The last lines of the log, for operators who look at the server from elsewhere."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

_KEPT = 500  # lines
_LONGEST = 2000  # characters of one; tracebacks have more


class RecentLine(NamedTuple):
    """number: of all lines since the start, from 1."""

    number: int
    level: str
    text: str


class RecentLines:
    """Any thread may call it."""

    def __init__(self, kept: int = _KEPT):
        self._lines: deque[RecentLine] = deque(maxlen=kept)
        self._lock = threading.Lock()
        self._last = 0

    def add(self, level: str, text: str) -> None:
        shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
        with self._lock:
            self._last += 1
            self._lines.append(RecentLine(self._last, level, shown))

    def after(self, number: int) -> list[RecentLine]:
        """Those behind it. A number that is still to come is of a server before this one, and means
        all.
        """
        with self._lock:
            start = 0 if number > self._last else number
            return [line for line in self._lines if line.number > start]
