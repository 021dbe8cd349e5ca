"""The three servers on one model directory, each with its own settings."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.server import NotServed, Serving, bushel_command, free_port, launch

COMMANDS: dict[str, Callable[[str, int], list[str]]] = {
    "Bushel": bushel_command,
    "mlx-lm": lambda model, port: _peer(["mlx_lm", "server"], model, port),
    "mlx-vlm": lambda model, port: _peer(["mlx_vlm.server"], model, port),
}


def _peer(module: list[str], model: str, port: int) -> list[str]:
    where = ["--host", "127.0.0.1", "--port", str(port)]
    return [sys.executable, "-m", *module, "--model", model, *where, "--log-level", "WARNING"]


@dataclass
class Server:
    """One side; started again when it has died, which is counted."""

    name: str
    model: str
    log: Path
    deaths: int = 0
    peak: int = 0  # bytes, of all its processes, as far as it has been looked at
    reason: str = ""  # why it does not serve the model at all
    _serving: Serving | None = field(default=None, repr=False)

    def start(self) -> None:
        port = free_port()
        self._serving = launch(COMMANDS[self.name](self.model, port), port, self.log)

    def wait(self, seconds: float) -> None:
        assert self._serving is not None
        try:
            self._serving.wait(seconds)
        except NotServed as error:
            self.reason = f"{error}: {last_line(self.log)}"
            self.stop()

    def port(self, patience: float) -> int | None:
        """Where it can be asked; None if it cannot."""
        if self.reason:
            return None
        assert self._serving is not None
        if not self._serving.healthy:
            self.deaths += 1
            self.stop()
            self.start()
            self.wait(patience)
        return None if self.reason else self._serving.port

    def look(self) -> int:
        """The most memory that it has taken."""
        if self._serving is not None and self._serving.process.poll() is None:
            self.peak = max(self.peak, memory_of(self._serving.process.pid))
        return self.peak

    def stop(self) -> None:
        if self._serving is not None:
            self._serving.stop()


@contextlib.contextmanager
def servers(model: str, names: Sequence[str], patience: float) -> Iterator[dict[str, Server]]:
    """All of them, started together and ready, or with the reason why not."""
    with tempfile.TemporaryDirectory(prefix="bushel-") as folder:
        made = {name: Server(name, model, Path(folder) / f"{name}.log") for name in names}
        try:
            for server in made.values():
                server.start()
            for server in made.values():
                server.wait(patience)
            yield made
        finally:
            for server in made.values():
                server.stop()


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line[:160] for line in reversed(lines) if line), "it said nothing")


def memory_of(pid: int) -> int:
    """Bytes of a process and those it started: the most so far on Linux, now elsewhere, and what
    they have on an NVIDIA GPU."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,rss="], capture_output=True, check=True)
    parents = {int(line.split()[0]): int(line.split()[1]) for line in listed.stdout.splitlines()}
    sizes = {int(line.split()[0]): int(line.split()[2]) for line in listed.stdout.splitlines()}
    family, grown = {pid}, True
    while grown:
        more = {child for child, parent in parents.items() if parent in family} - family
        family, grown = family | more, bool(more)
    on_gpu = _gpu_bytes()
    return sum(on_gpu.get(one, 1024 * _peak_kib(one, sizes.get(one, 0))) for one in family)


def _peak_kib(pid: int, now: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return now


def _gpu_bytes() -> dict[int, int]:
    """By process, where there is an NVIDIA GPU."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(query, capture_output=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = (line.split(b",") for line in listed.stdout.splitlines() if b"," in line)
    return {int(pid): int(size) << 20 for pid, size in rows if size.strip().isdigit()}
