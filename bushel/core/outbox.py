"""What a child has to say, written without its sender waiting for whoever reads.

What the socket takes at once is written at once, by the sender itself; the rest waits here, and a
thread writes it. A socket pair of macOS holds 8 KiB unless it is asked for more, four steps of 32
rows, where one of Linux holds fifty: a front that is busy for a moment must not hold up a step.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Iterable

ROOM = 1 << 20  # bytes that a socket is asked to hold, on both sides
_MOST = 64 << 20  # bytes that wait here before senders do


def widen(end: socket.socket) -> None:
    """As much room as the system grants, up to `ROOM`."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        size = ROOM
        while size > 8 << 10:
            with contextlib.suppress(OSError):  # macOS refuses what Linux makes smaller
                end.setsockopt(socket.SOL_SOCKET, option, size)
                break
            size >>= 1


class Outbox:
    """Any thread may send. OSError when nobody can read any more."""

    def __init__(self, end: socket.socket, most: int = _MOST):
        self._socket = end
        self._most = most
        self._waiting: deque[memoryview] = deque()
        self._bytes = 0  # that wait
        self._changed = threading.Condition()
        self._error: OSError | None = None
        threading.Thread(target=self._write, name="outbox", daemon=True).start()

    def send(self, pieces: Iterable[bytes | memoryview]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < self._most or self._error)
            if self._error is not None:
                raise self._error
            left = deque(memoryview(piece).cast("B") for piece in pieces)
            if not self._waiting:  # nobody's turn is before this one's
                self._write_now(left)
            if left:
                self._bytes += sum(map(len, left))
                self._waiting.extend(left)
                self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait until all of it is written, or for so long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._bytes or self._error, seconds)

    def _write_now(self, pieces: deque[memoryview]) -> None:
        """What the socket takes without waiting."""
        while pieces:
            if not pieces[0]:
                pieces.popleft()
                continue
            try:
                size = self._socket.send(pieces[0], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            pieces[0] = pieces[0][size:]

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                piece = self._waiting[0]  # it stays there, so that nobody overtakes it
            try:
                self._socket.sendall(piece)
            except OSError as error:
                with self._changed:
                    self._error, self._bytes = error, 0
                    self._changed.notify_all()
                return
            with self._changed:
                self._waiting.popleft()
                self._bytes -= len(piece)
                self._changed.notify_all()
