"""What people are told of a download from the hub, by whoever really fetches something.

Each process of a server asks the hub's library for its checkpoint, and the library shows three bars
for that, also where nothing was left to fetch. Here it is one line, from the first byte on: on a
terminal it is written over, in a log there is another one from time to time.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from tqdm.auto import tqdm

from bushel.core.load_progress import TELL_EVERY, loaded_words
from bushel.core.terminal_line import TerminalLine

log = logging.getLogger(__name__)

_SHOW_EVERY = 0.1  # seconds


class _UndrawnBar(tqdm):  # type: ignore[misc,type-arg,unused-ignore]
    """In place of the library's bars, of which some count bytes and some files."""

    def __init__(self, *arguments: Any, **settings: Any):
        settings.pop("name", None)
        self._counts_bytes = settings.get("unit") == "B"
        super().__init__(*arguments, **{**settings, "disable": True})


class DownloadBar(_UndrawnBar):
    """Of those that count bytes, shows how many."""

    line: ClassVar[TerminalLine | None] = None  # what is shown on it is of one download
    told: ClassVar[float] = 0.0

    def update(self, n: float | None = 1) -> None:
        self.n += n or 0
        if self._counts_bytes and self.n and self.total:
            self._tell(f"downloading  {loaded_words(int(self.n), int(self.total))}")

    @classmethod
    def begin(cls) -> None:
        cls.line, cls.told = TerminalLine(), time.monotonic()

    @classmethod
    def end(cls) -> None:
        if cls.line is not None:
            cls.line.show("")

    @classmethod
    def _tell(cls, text: str) -> None:
        line, now = cls.line, time.monotonic()
        if line is None or now - cls.told < (_SHOW_EVERY if line.on else TELL_EVERY):
            return
        cls.told = now
        if line.on:
            line.show(text)
        else:
            log.info("%s", text)


class CountingBar(_UndrawnBar):
    """Tells one listener how many bytes came and how many files are there."""

    _listener: ClassVar[Callable[[int, int], None] | None] = None
    _bytes: ClassVar[int] = 0
    _files: ClassVar[int] = 0

    def update(self, n: float | None = 1) -> None:
        self.n += n or 0
        kind = CountingBar
        if not self._counts_bytes:
            kind._files = int(self.n)
        else:  # of two bars, one counts what the network brought, and one what is written
            kind._bytes = max(kind._bytes, int(self.n))
        if kind._listener is not None:
            kind._listener(kind._bytes, kind._files)

    @classmethod
    @contextlib.contextmanager
    def heard_by(cls, listener: Callable[[int, int], None]) -> Iterator[None]:
        """For one download at a time."""
        cls._listener, cls._bytes, cls._files = listener, 0, 0
        try:
            yield
        finally:
            cls._listener = None
