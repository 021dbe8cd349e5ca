"""Nobody has to read the log: what the server does when its stderr takes nothing more."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from bushel.server.observability.log_queue import LogQueue
from tests.server.server_process import FEW, PATIENCE, children, free_port, until
from tests.server.test_metrics import samples

DROPPED = "bushel:log_lines_dropped_total"
_SMALLEST = 4096  # bytes that a pipe can be made to hold


class Unread:
    """A server whose stderr is a pipe that is full soon, until somebody reads it."""

    def __init__(self, *arguments: str) -> None:
        port = free_port()
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)
        self._end, theirs = os.pipe()
        fcntl.fcntl(theirs, getattr(fcntl, "F_SETPIPE_SZ", 1031), _SMALLEST)
        command = [sys.executable, "-m", "bushel", "serve", "bushel:tiny", "--port", str(port)]
        self.process = subprocess.Popen([*command, *arguments], stderr=theirs, stdout=theirs)
        os.close(theirs)

    def ready(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self.http.get("/health").status_code == 200
        return False

    def read(self) -> threading.Thread:
        """From now on somebody reads, to the end."""
        self.log = bytearray()

        def read() -> None:
            while data := os.read(self._end, 1 << 16):
                self.log += data

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def unread() -> Iterator[Unread]:
    server = Unread(*FEW, "--log-json", "--log-prompts")
    yield server
    server.close()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="pipes of a chosen size, and /proc")
def test_a_log_that_nobody_reads_stops_neither_the_server_nor_its_children(unread: Unread) -> None:
    """What waited is there when somebody reads it after all. B69."""
    until(unread.ready, "it serves, though its pipe may be full already")
    for at in range(6):  # 4 kB of log each
        body = {"prompt": f"number {at} " + "x" * 400, "stop": ["y" * 400] * 8, "max_tokens": 1}
        assert unread.http.post("/v1/completions", json=body).status_code == 200
    words = b"a last word of a library\n" * 4000  # more than a pipe holds
    for child in children(unread.process.pid):
        with Path(f"/proc/{child}/fd/2").open("wb", buffering=0) as stderr:
            writer = threading.Thread(target=stderr.write, args=(words,), daemon=True)
            writer.start()
            writer.join(PATIENCE)
            assert not writer.is_alive()
    assert unread.ready()
    assert DROPPED in samples(unread.http.get("/metrics").text)
    reading = unread.read()
    unread.process.terminate()
    assert unread.process.wait(PATIENCE) == 0
    reading.join(PATIENCE)
    lines = [json.loads(line)["message"] for line in unread.log.splitlines()]
    for at in range(6):
        assert any(f"number {at} " in line for line in lines)
    assert sum("a last word of a library" in line for line in lines) > 1000
    assert any("shutting down" in line for line in lines)


# -- the queue itself --------------------------------------------------------------------------


def logger_of(queue: LogQueue) -> logging.Logger:
    queue.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(queue)
    return logger


def test_lines_beyond_the_bound_are_dropped_counted_and_told_of() -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(theirs, b"." * 4096)  # now it takes nothing
    with os.fdopen(theirs, "w") as stream, os.fdopen(ours, "rb", buffering=0) as reader:
        queue = LogQueue(stream, most=1000)
        logger = logger_of(queue)
        for at in range(100):
            logger.info("line %02d %s", at, "x" * 91)  # 100 characters
        assert queue.dropped == 90
        assert not queue.drain(0.1)
        got = bytearray()
        until(lambda: _more(reader, got) and b"90 lines" in got, "it is told")
        assert queue.drain(PATIENCE)
        logger.info("all is well")
        until(lambda: _more(reader, got) and b"all is well" in got, "it goes on")
        queue.close()
    lines = got.lstrip(b".").decode().splitlines()
    assert [line[:7] for line in lines[:10]] == [f"line {at:02d}" for at in range(10)]
    assert lines[10:] == [
        "90 lines of this log were dropped, because nobody read it",
        "all is well",
    ]


def _more(reader: io.RawIOBase, got: bytearray) -> bool:
    os.set_blocking(reader.fileno(), False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(reader.fileno(), 1 << 16):
            got += data
    return True


def test_a_reader_that_is_gone_and_no_stderr_at_all_are_no_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as stream:
        for queue in (LogQueue(stream), LogQueue(None)):
            logger_of(queue).warning("hello")
            assert queue.drain(PATIENCE)
            assert queue.dropped == 1
            queue.close()


@pytest.mark.parametrize("fault", ["raise ValueError('broken')", "sys.exit(3)"])
def test_the_last_lines_before_an_end_come_out(fault: str) -> None:
    """Also those of a crash, behind what was logged before."""
    script = f"""
import sys
from bushel.core.options import EngineOptions
from bushel.server.observability import logs
from bushel.server.options import ServerOptions
logs.setup(ServerOptions(EngineOptions("org/model")))
for at in range(2000):
    logs.log.info("line %d", at)
{fault}
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode in (1, 3)
    assert "line 1999" in done.stderr
    assert ("ValueError: broken" in done.stderr) == ("ValueError" in fault)
    assert done.stderr.find("line 1999") < done.stderr.find("ValueError") or done.returncode == 3
