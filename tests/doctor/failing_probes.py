"""A section whose probes raise, hang, take their process down or start others; and good ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from bushel.doctor.finding import DoctorOptions, Finding, Probe, Section

FOREVER = 3600.0


def section(options: DoctorOptions) -> Section:
    return Section(
        [
            Probe("first", partial(_good, "first")),
            Probe("raises", _raises),
            Probe("hangs", _hangs, seconds=1),
            Probe("crashes", _crashes),
            Probe("long", partial(_good, "long"), long=True),
            Probe("last", partial(_good, "last")),
        ]
    )


def _good(name: str) -> Iterator[Finding]:
    yield Finding("ok", name, "as it should be")


def _raises() -> Iterator[Finding]:
    yield Finding("ok", "raises", "found before it raised")
    raise ValueError("this went wrong")


def _hangs() -> Iterator[Finding]:
    """With a process of its own, which says where it is."""
    command = [sys.executable, "-c", f"import time; time.sleep({FOREVER})"]
    started = subprocess.Popen(command, start_new_session=True)
    yield Finding("ok", "hangs", str(started.pid))
    time.sleep(FOREVER)


def _crashes() -> Iterator[Finding]:
    os.write(2, b"out of memory, say\n")
    os.abort()
    yield Finding("ok", "crashes", "never")
