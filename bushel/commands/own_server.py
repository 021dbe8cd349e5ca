"""A `bushel serve` that belongs to one command: it lets nobody else in, and ends with the command.

Its standard input is a pipe whose other end the command holds: it is closed when the command is
gone, however it went. What it logs goes to a file without a name.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from bushel.commands.server_client import ServerClient, ServerError
from bushel.core import BushelError
from bushel.core.checkpoint import fetch, is_hub_id, read_checkpoint
from bushel.core.hub_folders import cached_models
from bushel.core.terminal_line import TerminalLine
from bushel.server.api_keys import OPERATOR_VARIABLE, VARIABLE

_FLAGS = ("--host", "127.0.0.1", "--drain-seconds", "0", "--end-with-stdin")
_FOR_ONE = ("--workers", "1")  # of a server that one person talks to
_LOOK = 0.1  # seconds between two looks at how it is doing
_END = 10.0  # seconds that it has to end in order
_TAIL = 4096  # bytes of its log that may hold its last words


class OwnServer:
    """Of one model, with more flags of `serve`. A signal from the terminal does not reach it."""

    def __init__(self, model: str, flags: Sequence[str] = _FOR_ONE):
        self.model = model
        key = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        self.client = ServerClient(f"http://127.0.0.1:{port}", key)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {**os.environ, VARIABLE: key, "BUSHEL_LOG_JSON": "false"}
        environment.pop(OPERATOR_VARIABLE, None)
        command = [sys.executable, "-m", "bushel", "serve", model, "--port", str(port)]
        self._process = subprocess.Popen(
            [*command, *_FLAGS, *flags],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Until it serves, and shows how far it is. BushelError in its words if it never will."""
        line = TerminalLine()
        try:
            # Where settings let a model come and go, it is loaded when it is asked.
            while (state := self._state())["state"] not in ("ready", "unloaded"):
                if state["state"] == "failed":
                    raise BushelError(f"{self.model} cannot be served: {state.get('reason')}")
                reason = state.get("reason") or "it is starting"
                line.show(f"{self.model}: {str(reason).removeprefix('it is ')}")
                time.sleep(_LOOK)
        finally:
            line.show("")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """Ends it, and waits for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            # Its processes notice that it is gone.
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._log.close()

    def _state(self) -> dict[str, Any]:
        if self.ended:
            raise BushelError(f"{self.model} cannot be served: {self._last_words()}")
        try:
            [card] = self.client.models()
        except ServerError:
            return {"state": "starting"}
        return dict(card)

    def _last_words(self) -> str:
        length = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, length - _TAIL))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("bushel: ") if lines else "it ended without a word"


def require_model(model: str) -> None:
    """Downloads a model of the hub that is not here, and shows it: a server would only log it.
    ModelError at once, if it can be no model.
    """
    if not is_hub_id(model):
        read_checkpoint(model, trust_remote_code=True)  # whether that is allowed, the server knows
    elif model not in cached_models():
        line = TerminalLine()
        line.show(f"{model} is not on this machine yet: looking for it on the hub")
        try:
            fetch(model)
        finally:
            line.show("")
