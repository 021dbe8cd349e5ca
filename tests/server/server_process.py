"""A real `bushel serve` in processes of its own, for tests that talk to it over HTTP."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from bushel.core.held_files import VARIABLE

PATIENCE = 120.0  # seconds for anything that has to happen; far more than it takes
# Nothing is measured at their start, unless a test says otherwise of PYTHONPATH.
_HERE = Path(__file__).parent
_FOLDERS = (_HERE.parent / "quick_starts", _HERE.parents[1])
_PATH = os.pathsep.join(map(str, _FOLDERS))
FEW = ("--workers", "1")  # processes to start, where it does not matter


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    found = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    pairs = [tuple(map(int, line.split())) for line in found.stdout.splitlines()]
    return [one for one, parent in pairs if parent == pid]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def until(condition: Any, what: str) -> Any:
    """Wait for a condition; returns what it returned."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE:g} s: {what}")


class Server:
    """first: what the shell does before it becomes the server; runtime: the folder in which servers
    that share a machine claim its memory (None: one of its own); more: as for `Popen`.
    """

    def __init__(
        self,
        *arguments: str,
        model: str | tuple[str, ...] = "bushel:tiny",
        first: str = "",
        runtime: Path | None = None,
        **more: Any,
    ):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)
        descriptor, name = tempfile.mkstemp(prefix="bushel-", suffix=".log")
        self._log = Path(name)
        models = (model,) if isinstance(model, str) else model
        command = [sys.executable, "-m", "bushel", "serve", *models, "--port", str(self.port)]
        self._own = None if runtime else tempfile.TemporaryDirectory(prefix="bushel-")
        self.runtime = runtime or Path(self._own.name)  # type: ignore[union-attr]
        environment = {**os.environ, "PYTHONPATH": _PATH, **more.pop("env", {})}
        environment[VARIABLE] = str(self.runtime)
        if first:
            command = ["sh", "-c", f'{first}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            env=environment,
            **more,
        )
        os.close(descriptor)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def logged(self, words: str) -> str:
        """The line that holds these words, once it is written: the log comes from a queue."""

        def line() -> str | None:
            return next((line for line in self.log.splitlines() if words in line), None)

        return str(until(line, f"the log has {words!r}"))

    def health(self) -> int:
        try:
            return self.http.get("/health").status_code
        except httpx.TransportError:
            return 0

    def wait(self) -> Server:
        def ready() -> bool:
            assert self.process.poll() is None, self.log
            return self.health() == 200

        until(ready, f"the server is ready: {self.log}")
        return self

    def status(self) -> dict[str, Any]:
        return dict(self.http.get("/v1/status").raise_for_status().json())

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.unlink()
        if self._own is not None:
            self._own.cleanup()


@contextlib.contextmanager
def serving(
    *arguments: str, model: str | tuple[str, ...] = "bushel:tiny", **more: Any
) -> Iterator[Server]:
    server = Server(*arguments, model=model, **more)
    try:
        yield server.wait()
    finally:
        server.close()
