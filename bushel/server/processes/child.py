"""A child process and the front's end of the socket pair between them.

The pair has no name in any file system: nobody else can connect, and nothing is left behind.
The child ends when the front's end closes (`core.child_link`).

A child that is stopped, by a signal or a debugger, is known by two signs: it neither says
anything nor uses the processor. One that only computes may be silent for long (it holds the
interpreter's lock), and one that only waits says `Pulse`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from bushel.core import BushelError
from bushel.core.awake_clock import awake
from bushel.core.outbox import widen
from bushel.core.wire import Assembler, Pulse, WireMessage, encode
from bushel.server.http.descriptors import reserve
from bushel.server.observability.log_queue import ChildOutput

log = logging.getLogger(__name__)
M = TypeVar("M")

_LOOK = 1.0  # seconds between looks whether it is alive
_QUIET = 2.5  # seconds without a word, of which there is one a second, before its clock is read


class Child(asyncio.Protocol, Generic[M]):
    """`on_message` gets each message and its tail, on the event loop. `ended` resolves to the
    exit code when the process is gone and everything it said has been handed over."""

    def __init__(self, messages: Any, on_message: Callable[[M, memoryview], None]):
        self._assembler: Assembler[M] = Assembler(messages)
        self._on_message = on_message
        self._transport: asyncio.Transport | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._closed = asyncio.Event()
        self._heard = awake()  # when
        self.frozen = 0.0  # seconds without any sign of life
        self.ended: asyncio.Task[int]

    @classmethod
    async def spawn(
        cls,
        module: str,
        messages: Any,
        on_message: Callable[[M, memoryview], None],
        label: str = "",
        inherited: Sequence[int] = (),
    ) -> Child[M]:
        """label: what its own writing is logged under. inherited: descriptors that it holds, too.
        OSError if there is no room for another process, its descriptors or its memory.
        """
        child = cls(messages, on_message)
        with reserve.lent():
            ours, theirs = socket.socketpair()
            widen(ours)
            widen(theirs)
            try:
                with theirs, _output(label or module.split(".")[-2:][0]) as output:
                    child._process = await asyncio.create_subprocess_exec(
                        sys.executable,
                        "-m",
                        "bushel.core.child_process",
                        module,
                        str(theirs.fileno()),
                        pass_fds=[theirs.fileno(), *inherited],
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,  # Ctrl-C in a terminal is for the front alone
                    )
                loop = asyncio.get_running_loop()
                await loop.create_unix_connection(lambda: child, sock=ours)
            except BaseException:
                ours.close()
                child.kill()
                raise
        child.ended = asyncio.create_task(child._end())
        return child

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def processor_seconds(self) -> float | None:
        """That it has used; None where that cannot be known now."""
        return await _processor_seconds(self.pid)

    def send(self, message: WireMessage, tail: Sequence[bytes | memoryview] = ()) -> None:
        """Never blocks; to a child that is gone it does nothing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(encode(message, tail))

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self, seconds: float = 0.0) -> None:
        """Until it is gone; killed if it does not end by itself in time."""
        await asyncio.wait([self.ended], timeout=seconds)
        self.kill()
        await asyncio.wait([self.ended])

    async def _end(self) -> int:
        assert self._process is not None
        watching = asyncio.create_task(self._watch(self._process.pid))
        try:
            code = await self._process.wait()
        finally:
            watching.cancel()
        await self._closed.wait()
        return code

    async def _watch(self, pid: int) -> None:
        used: float | None = 0.0
        looked = awake()
        while True:
            await asyncio.sleep(_LOOK)
            now = awake()
            passed, looked = now - looked, now
            if now - self._heard < _QUIET:
                self.frozen = 0.0
            elif (seconds := await _processor_seconds(pid)) is None or seconds != used:
                used, self.frozen = seconds, 0.0
            else:
                self.frozen += passed

    # -- asyncio.Protocol --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        self._heard = awake()
        try:
            for message, tail in self._assembler.feed(data):
                if not isinstance(message, Pulse):
                    self._on_message(message, tail)
        except (BushelError, ValueError):  # not one of ours: its memory is in disorder
            self.kill()
            raise

    def connection_lost(self, error: Exception | None) -> None:
        self._closed.set()


@contextlib.contextmanager
def _output(label: str) -> Iterator[int | None]:
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
    try:
        ChildOutput(ours, label, log)
    except RuntimeError as error:  # there is no room for a thread, as for a process
        os.close(ours)
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error


def cannot_spawn(error: OSError) -> str:
    """For people, who need not know what was tried."""
    return f"could not be started ({os.strerror(error.errno or 0)})"


async def _processor_seconds(pid: int) -> float | None:
    """That a process has used; None where that cannot be known now."""
    with contextlib.suppress(RuntimeError):  # there is no room for a thread
        return await asyncio.to_thread(_read_processor_seconds, pid)
    return None


def _read_processor_seconds(pid: int) -> float | None:
    with contextlib.suppress(OSError, ValueError, IndexError, subprocess.SubprocessError):
        if (stat := Path(f"/proc/{pid}/stat")).exists():
            # The name may hold anything but ends with the last bracket; user and system follow.
            fields = stat.read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        listed = subprocess.run(
            ["ps", "-o", "time=", "-p", str(pid)], capture_output=True, check=True, timeout=5
        )
        minutes, _, seconds = listed.stdout.decode().strip().rpartition(":")
        return 60.0 * float(minutes.rpartition(":")[2]) + float(seconds)
    return None
