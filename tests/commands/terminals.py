"""A person at a terminal, by a script: types, presses keys, and waits for what is shown."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bushel.core.held_files import VARIABLE
from tests.server.server_process import PATIENCE, free_port

CTRL_C, CTRL_D, UP, TAB = "\x03", "\x04", "\x1b[A", "\t"
# What makes a pseudo-terminal the one that Ctrl-C is pressed on.
_OWN = (
    "import fcntl,os,sys,termios; fcntl.ioctl(0,termios.TIOCSCTTY,0); "
    "os.execv(sys.argv[1],sys.argv[1:])"
)
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


def person(home: Path, **more: str) -> dict[str, str]:
    """The environment of somebody with a home of their own, in which no server runs."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "BUSHEL_", "NO_COLOR", "COLUMNS", "LINES"))
    }
    own = {
        "HOME": str(home),
        "HF_HOME": str(home / "hub"),
        "HF_HUB_OFFLINE": "1",
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        VARIABLE: str(home / "runtime"),
        "BUSHEL_PORT": str(free_port()),  # nobody is at the usual address
        "TERM": "xterm-256color",
    }
    return {**kept, **own, **more}


class Terminal:
    """`bushel` with these arguments on a terminal, or another program of Python's.
    raw: every byte that it was sent, decoded.
    """

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str],
        columns: int = 100,
        cwd: str | None = None,
        program: Sequence[str] = ("-m", "bushel"),
    ):
        self._ours, theirs = pty.openpty()
        self.resize(columns)
        command = [sys.executable, *program, *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN, *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=dict(env),
            cwd=cwd,
        )
        os.close(theirs)
        self._bytes = b""
        self._seen = 0  # characters of `text` that a wait has passed

    @property
    def raw(self) -> str:
        return self._bytes.decode(errors="replace")

    @property
    def text(self) -> str:
        """Without colours and movements."""
        return _CODES.sub("", self.raw)

    def resize(self, columns: int, lines: int = 40) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def say(self, line: str) -> None:
        self.type(line + "\r")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """A regular expression in what comes after the last one that was waited for."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := re.compile(pattern).search(self.text, self._seen):
                self._seen = found.end()
                return found
            if not self._read(0.1) and self.process.poll() is not None and not self._read(0.1):
                break
        raise AssertionError(f"never shown: {pattern}\n{self.text[-4000:]}")

    def prompt(self) -> None:
        """Until the next line can be typed."""
        self.wait_for(r">>> $")

    def end(self) -> int:
        """The exit code, once it has ended by itself."""
        finish = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < finish:
            self._read(0.1)
        while self._read(0.1):
            pass
        assert self.process.poll() is not None, f"it has not ended\n{self.text[-4000:]}"
        return self.process.returncode

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            part = os.read(self._ours, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self._bytes += part
        return bool(part)
