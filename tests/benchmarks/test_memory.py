"""What the benchmark says of a server's memory is of the load that was measured."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from benchmarks.field import memory
from benchmarks.field.memory import PeakWatch

MB = 10**6
# What it is told to take, it takes in a process that it has started.
SERVER = """
import subprocess, sys
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[1]]).returncode)
"""
WORKER = """
import mmap, sys
print("ready", flush=True)
for line in sys.stdin:
    taken = mmap.mmap(-1, int(line))
    for page in range(0, int(line), mmap.PAGESIZE):
        taken[page] = 1
    print("taken", flush=True)
    sys.stdin.readline()
    taken.close()
    print("given back", flush=True)
"""
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for high-water marks")


class Server:
    def __init__(self, process: "subprocess.Popen[str]"):
        self.pid = process.pid
        self._process = process
        self._heard("ready")

    def take(self, count: int) -> None:
        self._tell(str(count), "taken")

    def give_back(self) -> None:
        self._tell("", "given back")

    def _tell(self, what: str, answer: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        self._heard(answer)

    def _heard(self, answer: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{answer}\n"


@pytest.fixture
def server() -> Iterator[Server]:
    command = [sys.executable, "-c", SERVER, WORKER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as process:
        yield Server(process)
        assert process.stdin is not None
        process.stdin.close()


def peak_after_a_larger_load(server: Server, while_it_runs: Callable[[], object]) -> int:
    """Of a load of 100 MB, of which nothing is left at its end; the one before took 400."""
    server.take(400 * MB)
    server.give_back()
    with PeakWatch(server.pid) as watch:
        server.take(100 * MB)
        while_it_runs()
        server.give_back()
    return watch.peak


@on_linux
def test_a_small_load_after_a_large_one_has_its_own_peak(server: Server) -> None:
    assert 100 * MB < peak_after_a_larger_load(server, lambda: None) < 300 * MB


@on_linux
def test_control_a_mark_that_is_not_set_back_is_that_of_the_large_load(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_forget_peaks", lambda pids: True)
    assert peak_after_a_larger_load(server, lambda: None) > 400 * MB


def test_what_no_mark_tells_is_looked_at_while_the_load_runs(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Semaphore(0)

    def look(pid: int, noted: bool) -> int:
        assert not noted
        found = memory_of(pid, noted)
        looked.release()
        return found

    def two_looks() -> None:
        """The first may have begun before the load."""
        while looked.acquire(blocking=False):
            pass
        assert looked.acquire(timeout=60)
        assert looked.acquire(timeout=60)

    memory_of = memory.memory_of
    monkeypatch.setattr(memory, "_forget_peaks", lambda pids: False)
    monkeypatch.setattr(memory, "memory_of", look)
    assert 100 * MB < peak_after_a_larger_load(server, two_looks) < 300 * MB


def test_what_is_on_a_gpu_is_looked_at_while_the_load_runs(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts instead of what the same process has elsewhere."""
    load, seen = threading.Event(), threading.Event()

    def on_gpu() -> dict[int, int]:
        runs = load.is_set()
        if runs:
            seen.set()
        return {server.pid: 5000 * MB if runs else 1000 * MB, 1: 9000 * MB}

    monkeypatch.setattr(memory, "_gpu_bytes", on_gpu)
    with PeakWatch(server.pid) as watch:
        load.set()
        assert seen.wait(timeout=60)
        load.clear()
    # Its child has no more than a small Python.
    assert 5000 * MB < watch.peak < 5200 * MB
