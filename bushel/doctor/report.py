"""The report as people read it, line by line as it comes, or as one JSON object."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections import Counter
from typing import Any, TextIO

import msgspec

from bushel.core.terminal_line import TerminalLine
from bushel.doctor.finding import Finding, Status

_WIDTH = 100
_NAMES = 24  # columns for what a line is about
_STATUSES: tuple[Status, ...] = ("ok", "slow", "wrong", "skipped")


class DoctorReport:
    """stdout gets findings; what goes on meanwhile is for a terminal on stderr alone."""

    def __init__(self, *, as_json: bool, out: TextIO | None = None, err: TextIO | None = None):
        self._json = as_json
        self._out = out or sys.stdout
        self._line = TerminalLine(err)
        self._begun = time.monotonic()
        self._findings: list[tuple[str, Finding]] = []
        self._counts: Counter[Status] = Counter()

    @property
    def wrong(self) -> bool:
        return self._counts["wrong"] > 0

    def add(self, section: str, finding: Finding) -> None:
        first = not any(name == section for name, _ in self._findings)
        self._findings.append((section, finding))
        self._counts[finding.status] += 1
        if not self._json:
            self._line.show("")
            self._say(f"\n{section}" if first else "", *lines(finding))

    def progress(self, text: str) -> None:
        self._line.show(text)

    def close(self) -> None:
        """The last line, or all of it."""
        self._line.show("")
        seconds = time.monotonic() - self._begun
        if self._json:
            self._say(msgspec.json.encode(self._as_object(seconds)).decode())
        else:
            counts = ", ".join(f"{self._counts[status]} {status}" for status in _STATUSES)
            self._say(f"\n{counts}; {seconds:.0f} s.")

    def _as_object(self, seconds: float) -> dict[str, Any]:
        return {
            "ok": not self.wrong,
            "seconds": round(seconds, 1),
            "counts": {status: self._counts[status] for status in _STATUSES},
            "findings": [
                {"section": section, **msgspec.to_builtins(finding)}
                for section, finding in self._findings
            ],
        }

    def _say(self, *texts: str) -> None:
        print("\n".join(filter(None, texts)), file=self._out, flush=True)


def lines(finding: Finding) -> list[str]:
    """Nothing in them names the user's home."""
    head = f"  {finding.status:8} {finding.name:{_NAMES}} "
    indent = " " * len(f"  {'':8} {'':{_NAMES}} ")
    text = textwrap.fill(
        _private(finding.words), _WIDTH, initial_indent=head, subsequent_indent=indent
    )
    if not finding.advice:
        return [text]
    advice = textwrap.fill(
        _private(finding.advice),
        _WIDTH,
        initial_indent=f"{indent}-> ",
        subsequent_indent=f"{indent}   ",
    )
    return [text, advice]


def _private(text: str) -> str:
    home = os.path.expanduser("~")
    return text.replace(home, "~") if len(home) > 1 else text
