"""Accepts connections while there are descriptors for them.

Those that come when there are none wait in the kernel's queue. (Left to the event loop's own
server they would be closed without a word: libuv does so when `accept` fails.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Collection

log = logging.getLogger(__name__)

_PAUSE = 0.1  # seconds before it is tried again when there is no room
_AT_ONCE = 64  # connections, before others have their turn on the loop


class Listener:
    """`connections`: those that are open, kept by who makes the protocols; `most` of them."""

    def __init__(
        self,
        sock: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        connections: Collection[object],
        most: int,
    ):
        self._socket = sock
        self._protocol = protocol
        self._connections = connections
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._coming: set[asyncio.Task[None]] = set()
        self._pausing: asyncio.TimerHandle | None = None
        self._told = False  # that it cannot accept
        sock.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Nobody is accepted any more, nor kept waiting."""
        if self._pausing is not None:
            self._pausing.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _listen(self) -> None:
        self._pausing = None
        self._loop.add_reader(self._socket, self._accept)

    def _pause(self) -> None:
        self._loop.remove_reader(self._socket)
        self._pausing = self._loop.call_later(_PAUSE, self._listen)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if len(self._connections) + len(self._coming) >= self._most:
                self._pause()
                return
            try:
                sock, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors, no memory: also of the whole machine
                if not self._told:
                    log.warning("no connection can be accepted: %s", error.strerror)
                self._told = True
                self._pause()
                return
            self._told = False
            task = self._loop.create_task(self._take(sock))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _take(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # it has gone already
            await self._loop.connect_accepted_socket(self._protocol, sock)
