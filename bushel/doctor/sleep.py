"""What the clocks do while the machine sleeps, and whether a server answers after that.

    clock            while the machine sleeps
    time.time        goes on
    time.monotonic   stops on macOS and Linux
    uvloop's         stops on Linux; on macOS it may go on: then all timers are late at once

Nobody can put a machine to sleep and look at it meanwhile, so `--sleep SECONDS` only waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial

import uvloop

from bushel.core import BushelError
from bushel.doctor.finding import DoctorOptions, Finding, Probe, Section, duration
from bushel.doctor.serve_process import ServeProcess

_APART = 0.05  # seconds in one second: a clock that goes so wrong counts something else
_SLEPT = 2.0  # seconds that a clock stood still, or more
_LOOK = 0.25
_SYSTEM_CLOCKS = ("CLOCK_BOOTTIME", "CLOCK_UPTIME_RAW", "CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW")


def section(options: DoctorOptions) -> Section:
    return Section(
        [
            Probe("clocks", clocks),
            Probe("sleep", lambda: slept(options.sleep), seconds=options.sleep + 240),
        ]
    )


def _loop_clock(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """A loop looks at its clock when it turns."""

    def now() -> float:
        loop.run_until_complete(asyncio.sleep(0))
        return loop.time()

    return now


class _Clocks:
    def __init__(self) -> None:
        self._loops = {"asyncio": asyncio.new_event_loop(), "uvloop": uvloop.new_event_loop()}
        self._clocks: dict[str, Callable[[], float]] = {
            "time.time": time.time,
            "time.monotonic": time.monotonic,
            **{name: _loop_clock(loop) for name, loop in self._loops.items()},
        }
        for name in _SYSTEM_CLOCKS:
            if (number := getattr(time, name, None)) is not None:
                self._clocks[name] = partial(time.clock_gettime, number)

    def read(self) -> dict[str, float]:
        return {name: clock() for name, clock in self._clocks.items()}

    def close(self) -> None:
        for loop in self._loops.values():
            loop.close()


def _passed(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in before}


def clocks() -> Iterator[Finding]:
    """Whether all of them count the same seconds while the machine is awake."""
    all_clocks = _Clocks()
    before = all_clocks.read()
    time.sleep(1.0)
    passed = _passed(before, all_clocks.read())
    all_clocks.close()
    apart = max(passed.values()) - min(passed.values())
    words = f"{', '.join(passed)}: {duration(apart)} apart after a second"
    if apart > _APART:
        told = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in passed.items())
        advice = "Is the clock being set? Try again; timeouts are wrong where clocks go wrong."
        yield Finding("slow", "clocks", f"{words}: {told}", advice)
    else:
        yield Finding("ok", "clocks", words)


def slept(seconds: float) -> Iterator[Finding]:
    if not seconds:
        words = (
            "not tried: run bushel doctor --section sleep --sleep 120, close the lid or choose "
            "Sleep within these seconds, and wake the machine after them"
        )
        yield Finding("skipped", "sleep", words)
        return
    server = ServeProcess("--workers", "1")
    try:
        server.ready(120)
        before, pid = server.ask(), server.status()["engine"]["pid"]
        yield from _waited(seconds)
        yield from _awake(server, before, pid)
    finally:
        server.close()


def _waited(seconds: float) -> Iterator[Finding]:
    all_clocks = _Clocks()
    before, end = all_clocks.read(), time.time() + seconds
    while time.time() < end:
        time.sleep(_LOOK)
    passed = _passed(before, all_clocks.read())
    all_clocks.close()
    still = passed["time.time"] - passed["time.monotonic"]
    told = ", ".join(f"{name} {value:.1f} s" for name, value in passed.items())
    if still > _SLEPT:
        yield Finding("ok", "sleep", f"time.monotonic stood still for {still:.0f} s: {told}")
    else:
        words = f"no clock stood still, so the machine did not sleep: {told}"
        yield Finding("skipped", "sleep", words)


def _awake(server: ServeProcess, before: str, pid: int) -> Iterator[Finding]:
    begun = time.perf_counter()
    try:
        after = server.until(server.ask, 60, "it answers")
    except BushelError as error:
        advice = "Start the server with caffeinate -is, and report this."
        yield Finding("wrong", "server after sleep", str(error), advice)
        return
    words = f"answers after {duration(time.perf_counter() - begun)}"
    if after != before:
        advice = "Please report this, with the whole of this page."
        yield Finding("wrong", "server after sleep", f"{words} something else", advice)
    elif server.status()["engine"]["pid"] != pid:
        advice = "The engine was taken for one that hangs: please report this."
        yield Finding("slow", "server after sleep", f"{words}, by another engine", advice)
    else:
        yield Finding("ok", "server after sleep", f"{words}, by the same engine")
