"""What people are told while weights are read, in bytes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from bushel.core.terminal_line import TerminalLine

TELL_EVERY = 5.0  # seconds between two lines of a log

# Bytes that are there, and bytes in all. The first call is of none, the last one of all.
OnLoaded = Callable[[int, int], None]

log = logging.getLogger(__name__)


def size_words(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"


def loaded_words(done: int, total: int) -> str:
    unit = 1e9 if total >= 10**8 else 1e6
    return f"{done / unit:.1f} of {size_words(total)}"


class LoadProgress:
    """Hears of bytes as often as there are some. show: a line that is written over, for a terminal;
    tell: a line of a log. One of them gets what happens on the way: tell, unless `shown`.
    """

    def __init__(
        self,
        name: str,
        show: Callable[[str], None],
        tell: Callable[[str], None],
        *,
        shown: bool,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._name = name
        self._show = show
        self._tell = tell
        self._shown = shown
        self._clock = clock
        self._began = self._told = clock()

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        if done == 0:
            self._began = self._told = now
        if done >= total:
            self._show("")
            self._tell(f"{size_words(total)} of weights loaded in {now - self._began:.1f} s")
        elif self._shown:
            self._show(f"loading {self._name}  {loaded_words(done, total)}")
        elif now - self._told >= TELL_EVERY:
            self._told = now
            self._tell(f"loading weights, {loaded_words(done, total)}")


def own_progress(name: str) -> LoadProgress:
    """Of a process that loads a model itself: on its terminal, or in its log."""
    line = TerminalLine()
    return LoadProgress(name, line.show, lambda text: log.info("%s: %s", name, text), shown=line.on)
