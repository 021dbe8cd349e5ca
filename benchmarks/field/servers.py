"""The three servers on one model directory, each with its own settings."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
    deaths: int = 0
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

    def watched(self) -> PeakWatch:
        assert self._serving is not None
        return PeakWatch(self._serving.process.pid)

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
