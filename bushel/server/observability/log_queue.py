"""Where log lines go when whoever should read them does not.

    any thread ─> emit ─> queue ─> a thread of its own ─> stderr

A pipe that nobody reads takes 64 kB and then makes writers wait, for ever. Only that thread waits;
once the queue is full, further lines are dropped, counted, and told of when writing works again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from typing import TextIO

from bushel.core.terminal_line import CLEAR, fitted, is_terminal
from bushel.server.observability.recent_lines import RecentLines

# Characters that wait: some ten thousand lines, minutes of a busy server.
_MOST_WAITING = 2 << 20


class LogQueue(logging.Handler):
    """`stream`: a file with a descriptor, or anything with `write`; None: everything is dropped."""

    def __init__(self, stream: TextIO | None, most: int = _MOST_WAITING):
        super().__init__()
        self._stream = stream
        self._descriptor = _descriptor(stream)
        self.terminal = is_terminal(stream)
        self._shown = False  # something that the next line takes the place of
        self._most = most
        self._lines: deque[str] = deque()
        self._waiting = 0  # characters, those being written included
        self._changed = threading.Condition()
        self._closed = False
        self.recent = RecentLines()
        self.dropped = 0  # lines, since the start
        self._untold = 0  # of them
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
        else:
            self.recent.add(record.levelname.lower(), line)
            self.say(line)

    def say(self, text: str) -> None:
        """Write it as it is, as a line."""
        with self._changed:
            line = f"{CLEAR if self._shown else ''}{text}\n"
            full = self._waiting + len(line) > self._most
            if self._stream is None or self._closed or full:
                self.dropped += 1
                self._untold += 1
                return
            self._shown = False
            self._put(line)

    def show(self, text: str) -> None:
        """What goes on meanwhile: on a terminal, and the next line or text takes its place."""
        with self._changed:
            if self.terminal and not self._closed and (text or self._shown):
                self._shown = bool(text)
                self._put(CLEAR + fitted(text))

    def _put(self, text: str) -> None:
        self._lines.append(text)
        self._waiting += len(text)
        self._changed.notify_all()

    def drain(self, seconds: float) -> bool:
        """Wait until everything is written, but no longer than that."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        super().close()

    def _run(self) -> None:
        while (lines := self._next()) is not None:
            text = "".join(lines)
            try:
                self._write(text)
                lost = 0
            except (OSError, ValueError):  # the reader is gone, or the file is closed
                lost = len(lines)
            with self._changed:
                self.dropped += lost
                self._untold += lost
                self._waiting -= len(text)
                untold = 0 if lost else self._untold
                self._untold -= untold
                self._changed.notify_all()
            if untold:
                self._tell(untold)

    def _next(self) -> list[str] | None:
        """All that waits; None when it is closed and nothing does."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed)
            lines, self._lines = list(self._lines), deque()
            return lines or None

    def _tell(self, count: int) -> None:
        note = "%d lines of this log were dropped, because nobody read it"
        record = logging.LogRecord(__name__, logging.WARNING, "", 0, note, (count,), None)
        self.emit(record)

    def _write(self, text: str) -> None:
        if self._descriptor is None:
            assert self._stream is not None
            self._stream.write(text)
            self._stream.flush()
            return
        data = memoryview(text.encode("utf-8", errors="backslashreplace"))
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # whoever shares the descriptor made it so
                select.select([], [self._descriptor], [], 1.0)


def _descriptor(stream: TextIO | None) -> int | None:
    if stream is not None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return stream.fileno()
    return None


class ChildOutput:
    """What a child writes to its stdout and stderr itself: a traceback, a library's last words.
    A thread reads it, so that a child never waits for whoever reads the log.
    """

    def __init__(self, descriptor: int, who: str, log: logging.Logger):
        self._descriptor = descriptor
        self._who = who
        self._log = log
        self._thread = threading.Thread(target=self._run, name=f"output-{who}", daemon=True)
        self._thread.start()

    def drain(self, seconds: float) -> None:
        """Until the child's end is closed and all of it is logged."""
        self._thread.join(seconds)

    def _run(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := os.read(self._descriptor, 1 << 12):
                *lines, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
                for line in lines:
                    self._say(line)
                if len(rest) >= 1 << 12:
                    self._say(rest)
                    rest = b""
                time.sleep(0.001)  # an endless writer gets no more than a share of this process
        self._say(rest)
        os.close(self._descriptor)

    def _say(self, line: bytes) -> None:
        if text := line.decode("utf-8", errors="replace").strip():
            self._log.warning("%s wrote: %s", self._who, text)
