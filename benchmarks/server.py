"""A server of its own for a measurement: `bushel serve`, or another one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.client import get


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class NotServed(SystemExit):
    """The server did not become ready."""


class Serving:
    def __init__(self, process: subprocess.Popen[bytes], port: int):
        self.process = process
        self.port = port

    @property
    def healthy(self) -> bool:
        with contextlib.suppress(OSError, IndexError, ValueError, TimeoutError):
            return asyncio.run(asyncio.wait_for(get(self.port, "/health"), 10)) == 200
        return False

    def wait(self, seconds: float = 600.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise NotServed("the server ended before it was ready")
            if self.healthy:
                return
            time.sleep(0.2)
        raise NotServed("the server did not become ready")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def front_bytes(self) -> int:
        """Resident memory of the front process."""
        listed = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, check=True
        )
        return int(listed.stdout) * 1024


def launch(
    command: Sequence[str], port: int, log: Path | None = None, tree: Path | None = None
) -> Serving:
    """Starts a server, without waiting for it. Nothing that it needs comes from a network."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    if log is None:
        return Serving(subprocess.Popen(command, env=environment, cwd=tree), port)
    with log.open("wb") as lines:
        process = subprocess.Popen(command, env=environment, stdout=lines, stderr=subprocess.STDOUT)
    return Serving(process, port)


def bushel_command(model: str | Path, port: int, *arguments: str) -> list[str]:
    """arguments: flags, or more models before them."""
    where = ["--port", str(port), "--log-level", "warning"]
    return [sys.executable, "-m", "bushel", "serve", str(model), *arguments, *where]


@contextlib.contextmanager
def serving(model: str | Path, *arguments: str, tree: Path | None = None) -> Iterator[Serving]:
    """tree: whose source is served, if not this one's."""
    port = free_port()
    server = launch(bushel_command(model, port, *arguments), port, tree=tree)
    try:
        server.wait()
        yield server
    finally:
        server.stop()
