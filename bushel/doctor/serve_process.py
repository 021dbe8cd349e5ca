"""A real `bushel serve` on a free loopback port, which a command starts, asks and ends."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bushel.core import BushelError
from bushel.core.checkpoint import TINY
from bushel.doctor.process_tree import descendants, kill, resident
from bushel.server.api_keys import OPERATOR_VARIABLE, VARIABLE

_FLAGS = ("--drain-seconds", "1")
_ASK = 60.0  # seconds for one answer
_TAIL = 400  # characters of the log
_LOOK = 0.1  # seconds between two looks

T = TypeVar("T")


class ServeProcess:
    """Its key is known to nobody else, so that nobody else is served. model: another than
    the one that comes with Bushel; detached: an interrupt from the terminal does not reach it.
    """

    def __init__(self, *flags: str, model: str | None = None, detached: bool = False) -> None:
        self.key = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {**os.environ, VARIABLE: self.key}
        environment.pop(OPERATOR_VARIABLE, None)
        command = [sys.executable, "-m", "bushel", "serve", model or TINY, "--port", str(self.port)]
        self._process = subprocess.Popen(
            [*command, *_FLAGS, *flags],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=detached,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer's JSON; BushelError with what it says if it is not a good one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ASK)
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            payload = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise BushelError(f"no answer: {type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise BushelError(f"{answer.status}: {payload[:200].decode(errors='replace')}")
        return json.loads(payload)

    def ask(self, prompt: str = "What is 3 + 4?", tokens: int = 8) -> str:
        """A reply's text."""
        message = {"role": "user", "content": prompt}
        body = {"messages": [message], "max_tokens": tokens, "temperature": 0}
        reply = self.request("POST", "/v1/chat/completions", body)
        return str(reply["choices"][0]["message"]["content"])

    def status(self) -> Any:
        return self.request("GET", "/v1/status")

    def forget(self) -> None:
        """What is kept of earlier prompts."""
        self.request("DELETE", "/v1/cache")

    def until(self, condition: Callable[[], T | None], seconds: float, what: str) -> T:
        """What a condition gives once it holds; it may fail meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise BushelError(f"the server ended by itself: {self.last_words()}")
            try:
                if (value := condition()) is not None:
                    return value
            except BushelError:
                pass
            time.sleep(_LOOK)
        raise BushelError(f"not within {seconds:g} s: {what}; {self.last_words()}")

    def ready(self, seconds: float) -> None:
        self.until(lambda: self.request("GET", "/health"), seconds, "it is ready")

    def signal_engine(self, number: signal.Signals) -> int:
        """Returns the engine's process id."""
        pid = int(self.status()["engine"]["pid"])
        os.kill(pid, number)
        return pid

    def resident(self) -> int:
        """Bytes of memory of all its processes."""
        return resident([self.pid, *descendants(self.pid)])

    def last_words(self) -> str:
        length = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, length - _TAIL))
        return " ".join(self._log.read().decode(errors="replace").split())

    def close(self) -> list[int]:
        """Ends it and all it has started; returns those that were still there after that."""
        started = [self.pid, *descendants(self.pid)]
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                kill(started)
                self._process.wait()
        end = time.monotonic() + 5
        while (left := [pid for pid in started if _alive(pid)]) and time.monotonic() < end:
            time.sleep(_LOOK)
        kill(left)
        return left


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
