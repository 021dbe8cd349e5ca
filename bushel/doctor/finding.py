"""What a report is made of: sections of probes, each of which finds something.

A section is a module with a function `section(options) -> Section`. It runs in a process of its
own (`process`), which tells the report (`run`) of everything as it comes:

    Began(0) Found Found Began(1) Found ... Done

So a probe may raise, hang or take its process down, and the report goes on with the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

Status = Literal["ok", "slow", "wrong", "skipped"]


class Finding(msgspec.Struct, frozen=True):
    """One line of the report. advice: what to do, where it is not ok."""

    status: Status
    name: str
    words: str
    advice: str = ""


class DoctorOptions(msgspec.Struct, frozen=True):
    """model: the user's own, beside the one that comes with Bushel."""

    model: str | None = None
    dtype: str | None = None
    trust_remote_code: bool = False
    quick: bool = False
    sleep: float = 0.0  # seconds in which the machine may be put to sleep


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Probe:
    """seconds: after which it is ended. long: left out of a quick report."""

    name: str
    run: Callable[[], Iterable[Finding]]
    seconds: float = 30.0
    long: bool = False


@dataclass(frozen=True)
class Section:
    """close: ends what probes have started."""

    probes: list[Probe]
    close: Callable[[], None] = _nothing


# -- what a section's process says -----------------------------------------------------------


class Began(msgspec.Struct, frozen=True, tag=True):
    number: int  # of the probe in its section
    name: str
    seconds: float


class Found(msgspec.Struct, frozen=True, tag=True):
    finding: Finding


class Done(msgspec.Struct, frozen=True, tag=True):
    """All probes have run, and what they started has ended."""


ToReport = Began | Found | Done


# -- words -----------------------------------------------------------------------------------


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{digits(count / factor)} {unit}"
    return f"{count:.0f} bytes"


def duration(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{digits(seconds / factor)} {unit}"
    return f"{digits(seconds / 1e-6)} us"


def digits(value: float) -> str:
    """Three of them, or as many as stand before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
