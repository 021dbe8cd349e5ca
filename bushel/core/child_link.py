"""A child's end of its socket to the front.

A thread of its own reads, so that large tensors arrive while the main thread works; another one
says every second that the process is alive. Any thread may send, and does not wait for the front
to read it (`outbox`). Nor does the front ever wait: its end does not block.

The kernel closes the front's end when the front dies, also by kill -9, on Linux and macOS
alike. The reading thread then ends the process, whatever the others are doing.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from bushel.core.outbox import Outbox
from bushel.core.wire import Assembler, LogLine, Pulse, WireMessage, encode

_READ = 1 << 20
_PULSE = 1.0  # seconds
_FLUSH = 5.0
M = TypeVar("M")


class _ToFront(logging.Handler):
    """Log lines of a child, in whatever form the front writes its own."""

    def __init__(self, link: Link[Any]):
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._link.send(LogLine(record.levelno, self.format(record)))
        except OSError:  # nobody is left to read it
            self.handleError(record)


class Link(Generic[M]):
    def __init__(self, descriptor: int, messages: Any):
        self._socket = socket.socket(fileno=descriptor)
        self._assembler: Assembler[M] = Assembler(messages)
        self._outbox = Outbox(self._socket)
        atexit.register(self.flush)
        self._arrived: queue.SimpleQueue[tuple[M, memoryview]] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="link", daemon=True).start()
        threading.Thread(target=self._pulse, name="pulse", daemon=True).start()
        logging.basicConfig(handlers=[_ToFront(self)], format="%(message)s")

    def send(self, message: WireMessage, tail: Sequence[bytes | memoryview] = ()) -> None:
        self._outbox.send(encode(message, tail))

    def flush(self) -> None:
        """Before the process ends: what was sent is on its way."""
        self._outbox.flush(_FLUSH)

    def wait(self) -> tuple[M, memoryview]:
        """The next message and its tail."""
        return self._arrived.get()

    def receive(self, timeout: float) -> Iterator[tuple[M, memoryview]]:
        """All that has arrived, after waiting up to `timeout` seconds for the first."""
        try:
            yield self._arrived.get(block=timeout > 0, timeout=timeout)
            while True:
                yield self._arrived.get(block=False)
        except queue.Empty:
            return

    def _read(self) -> None:
        buffer = memoryview(bytearray(_READ))
        try:
            while size := self._socket.recv_into(buffer):
                for message in self._assembler.feed(buffer[:size]):
                    self._arrived.put(message)
        finally:
            os._exit(0)

    def _pulse(self) -> None:
        with contextlib.suppress(OSError):  # the front is gone, and `_read` ends the process
            while True:
                self.send(Pulse())
                time.sleep(_PULSE)
