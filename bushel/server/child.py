"""A child process and the front's end of the socket pair between them.

The pair has no name in any file system: nobody else can connect, and nothing is left behind.
The child ends when the front's end closes (`core.link`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from bushel.core import BushelError
from bushel.core.wire import Assembler, Message, encode
from bushel.server.log_queue import ChildOutput

log = logging.getLogger(__name__)
M = TypeVar("M")


class Child(asyncio.Protocol, Generic[M]):
    """`on_message` gets each message and its tail, on the event loop. `ended` resolves to the
    exit code when the process is gone and everything it said has been handed over."""

    def __init__(self, messages: Any, on_message: Callable[[M, memoryview], None]):
        self._assembler: Assembler[M] = Assembler(messages)
        self._on_message = on_message
        self._transport: asyncio.Transport | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._closed = asyncio.Event()
        self.ended: asyncio.Task[int] | None = None

    @classmethod
    async def spawn(
        cls, module: str, messages: Any, on_message: Callable[[M, memoryview], None]
    ) -> Child[M]:
        child = cls(messages, on_message)
        ours, theirs = socket.socketpair()
        with theirs, _output(module) as output:
            child._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: child, sock=ours)
        child.ended = asyncio.create_task(child._end())
        return child

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send(self, message: Message, tail: Sequence[bytes | memoryview] = ()) -> None:
        """Never blocks; to a child that is gone it does nothing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(encode(message, tail))

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self, seconds: float = 0.0) -> None:
        """Until it is gone; killed if it does not end by itself in time."""
        assert self.ended is not None
        await asyncio.wait([self.ended], timeout=seconds)
        self.kill()
        await asyncio.wait([self.ended])

    async def _end(self) -> int:
        assert self._process is not None
        code = await self._process.wait()
        await self._closed.wait()
        return code

    # -- asyncio.Protocol --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        try:
            for message, tail in self._assembler.feed(data):
                self._on_message(message, tail)
        except (BushelError, ValueError):  # not one of ours: its memory is in disorder
            self.kill()
            raise

    def connection_lost(self, error: Exception | None) -> None:
        self._closed.set()


@contextlib.contextmanager
def _output(module: str) -> Iterator[int | None]:
    """Where a child's own writing goes: to the log. On a terminal it stays there (None), since
    somebody reads it, and a download shows its progress.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        yield None
        return
    ours, theirs = os.pipe()
    try:
        yield theirs
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    ChildOutput(ours, module.split(".")[1], log)
