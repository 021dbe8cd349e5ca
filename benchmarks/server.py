"""A `bushel serve` of its own for a measurement."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.client import get


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Serving:
    def __init__(self, process: subprocess.Popen[bytes], port: int):
        self.process = process
        self.port = port

    def wait(self, seconds: float = 600.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise SystemExit("the server ended before it was ready")
            with contextlib.suppress(OSError):
                if asyncio.run(get(self.port, "/health")) == 200:
                    return
            time.sleep(0.2)
        raise SystemExit("the server did not become ready")

    @property
    def front_bytes(self) -> int:
        """Resident memory of the front process."""
        found = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, check=True
        )
        return int(found.stdout) * 1024


@contextlib.contextmanager
def serving(model: str | Path, *arguments: str, tree: Path | None = None) -> Iterator[Serving]:
    """tree: whose source is served, if not this one's."""
    port = _free_port()
    command = [sys.executable, "-m", "bushel", "serve", str(model), "--port", str(port)]
    process = subprocess.Popen([*command, "--log-level", "warning", *arguments], cwd=tree)
    try:
        found = Serving(process, port)
        found.wait()
        yield found
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
