"""The three servers on one model directory, each with its own settings.

Where memory is a GPU's own, Bushel takes most of it at load, and peers, which take theirs as they
need it, would end in its want: beside them it is held to its part.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx

from benchmarks.field.memory import PeakWatch
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
    flags: Sequence[str] = ()  # more of them
    deaths: int = 0
    reason: str = ""  # why it does not serve the model at all
    _serving: Serving | None = field(default=None, repr=False)

    def start(self) -> None:
        port = free_port()
        command = [*COMMANDS[self.name](self.model, port), *self.flags]
        self._serving = launch(command, port, self.log)

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

    def watched(self) -> PeakWatch:
        assert self._serving is not None
        return PeakWatch(self._serving.process.pid)

    def stop(self) -> None:
        if self._serving is not None:
            self._serving.stop()


@contextlib.contextmanager
def servers(model: str, names: Sequence[str], patience: float) -> Iterator[dict[str, Server]]:
    """All of them, ready, or with the reason why not. They start one after the other: Bushel's
    measures what its steps cost, and who starts beside it would be in the figures.
    """
    with tempfile.TemporaryDirectory(prefix="bushel-") as folder:
        made = {name: Server(name, model, Path(folder) / f"{name}.log") for name in names}
        if "Bushel" in made and len(made) > 1:
            made["Bushel"].flags = _part_of_memory(len(made) + 1)  # this process has a model, too
        try:
            for server in made.values():
                server.start()
                server.wait(patience)
            yield made
        finally:
            for server in made.values():
                server.stop()


def _part_of_memory(parts: int) -> Sequence[str]:
    if not mx.cuda.is_available():
        return ()
    return "--memory-limit-gb", f"{mx.get_memory_limit() / 1e9 / parts:.1f}"


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line[:160] for line in reversed(lines) if line), "it said nothing")
