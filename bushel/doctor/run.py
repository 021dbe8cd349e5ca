"""Runs the sections one after the other, each in a process of its own, and tells what they find.

Imports no MLX: it has to say so where MLX cannot be imported.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO

import msgspec

from bushel.doctor.finding import Began, DoctorOptions, Done, Finding, Found, ToReport
from bushel.doctor.process_tree import descendants, kill
from bushel.doctor.sections import SECTIONS

SECONDS = 300.0  # for everything, beside the time to sleep

_START = 90.0  # seconds for a section's imports: a cold disk takes many of them
_CLOSE = 30.0  # and for its process to be gone
_TICK = 1.0  # seconds between two words on what is going on
_TAIL = 300  # characters of what a process said last

_OVER = "the time of the whole report was over"
_REPORT = "Please report this, with the whole of this page."

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _SectionEnd:
    """How a section's process came to its end; the probe it was at, if at any."""

    began: Began | None = None
    hung: bool = False
    code: int = 0
    last_words: str = ""


def _log_file() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError:  # a full disk is something to report
        return open(os.devnull, "r+b")


class _SectionProcess:
    """A section from some probe on."""

    def __init__(self, module: str, skip: int, options: DoctorOptions):
        ours, theirs = os.pipe()
        self._pipe = ours
        self._log = _log_file()
        command = [sys.executable, "-m", "bushel.doctor.process", str(theirs), module, str(skip)]
        try:
            self._process = subprocess.Popen(
                [*command, msgspec.json.encode(options).decode()],
                pass_fds=[theirs],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is for the report, which ends all of this
            )
        finally:
            os.close(theirs)

    def messages(self, bound: float, progress: Progress) -> Iterator[ToReport | _SectionEnd]:
        """Until it ends or hangs, or `bound` on the monotonic clock has come; last its ending."""
        began: Began | None = None
        since, seconds, rest = time.monotonic(), _START, b""
        while True:
            end = min(since + seconds, bound)
            now = time.monotonic()
            if now >= end:
                yield _SectionEnd(began, hung=True)
                return
            progress(f"{began.name if began else 'starting'}, {now - since:.0f} s")
            ready, _, _ = select.select([self._pipe], [], [], min(_TICK, end - now))
            if not ready:
                continue
            data = os.read(self._pipe, 1 << 16)
            if not data:
                yield self._ended(began)
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message: ToReport = msgspec.json.decode(line, type=ToReport)
                if isinstance(message, Began):
                    began, since, seconds = message, time.monotonic(), message.seconds
                yield message

    def _ended(self, began: Began | None) -> _SectionEnd:
        try:
            code = self._process.wait(_CLOSE)
        except subprocess.TimeoutExpired:
            return _SectionEnd(began, hung=True)
        return _SectionEnd(began, code=code, last_words=self._last_words())

    def close(self) -> None:
        """It is gone, and so is all that it has started."""
        if self._process.poll() is None:
            kill([self._process.pid, *descendants(self._process.pid)])
            with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold it
                self._process.wait(_CLOSE)
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._pipe)
        self._log.close()

    def _last_words(self) -> str:
        length = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, length - _TAIL))
        return " ".join(self._log.read().decode(errors="replace").split())


def section_findings(
    module: str, options: DoctorOptions, bound: float, progress: Progress
) -> Iterator[Finding]:
    """What a section finds; its probes go on in a new process where one was lost."""
    skip: int | None = 0
    while skip is not None:
        process = _SectionProcess(module, skip, options)
        skip = None
        try:
            for message in process.messages(bound, progress):
                if isinstance(message, Found):
                    yield message.finding
                elif isinstance(message, _SectionEnd):
                    late = time.monotonic() >= bound
                    yield _lost(message, late, module.rpartition(".")[2])
                    skip = None if late or message.began is None else message.began.number + 1
                elif isinstance(message, Done):
                    break
        finally:
            process.close()


def _lost(ending: _SectionEnd, late: bool, section: str) -> Finding:
    name = ending.began.name if ending.began else "start"
    if late:
        return Finding("skipped", name, _OVER, f"bushel doctor --section {section}")
    if ending.hung:
        seconds = ending.began.seconds if ending.began else _START
        words = f"did not end within {seconds:g} s"
        return Finding("wrong", name, words, _REPORT)
    words = f"its process ended {_how(ending.code)}"
    words += f": {ending.last_words}" if ending.last_words else ""
    return Finding("wrong", name, words, _REPORT)


def _how(code: int) -> str:
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def run(
    options: DoctorOptions,
    found: Callable[[str, Finding], None],
    progress: Progress,
    sections: Mapping[str, str] = SECTIONS,
    seconds: float = SECONDS,
) -> None:
    """Tells every finding with its section, as it comes."""
    bound = time.monotonic() + seconds + options.sleep
    for name, module in sections.items():
        if time.monotonic() >= bound:
            advice = f"bushel doctor --section {name}"
            found(name, Finding("skipped", name, _OVER, advice))
            continue
        for finding in section_findings(module, options, bound, partial(_tell, progress, name)):
            found(name, finding)


def _tell(progress: Progress, section: str, text: str) -> None:
    progress(f"{section}: {text}")
