"""The process of one section: runs its probes in turn and says what they find.

It ends with all that it has started when nobody listens any more, however that came about.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

import msgspec

from bushel.core import BushelError
from bushel.doctor.finding import (
    Began,
    DoctorOptions,
    Done,
    Finding,
    Found,
    Probe,
    Section,
    ToReport,
)
from bushel.doctor.process_tree import descendants, kill

_REPORT = "Please report this, with the whole of this page."


def findings(section: Section, skip: int, quick: bool) -> Iterator[ToReport]:
    """Of all probes but the first so many."""
    for number, probe in enumerate(section.probes):
        if number < skip:
            continue
        yield Began(number, probe.name, probe.seconds)
        if quick and probe.long:
            yield Found(Finding("skipped", probe.name, "--quick leaves it out"))
        else:
            yield from map(Found, _survived(probe))


def _survived(probe: Probe) -> Iterator[Finding]:
    try:
        yield from probe.run()
    except Exception as error:
        yield Finding("wrong", probe.name, _words(error), _REPORT)


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, BushelError) and text else f"{type(error).__name__}: {text}"


def cannot_begin(error: Exception) -> Finding:
    """Why a section's module could not even be imported."""
    return Finding("wrong", "start", _words(error), _REPORT)


def _end_when_alone() -> None:
    """The report holds the other end of stdin."""
    os.read(0, 1)
    kill(descendants(os.getpid()))
    os._exit(1)


def _run(module: str, skip: int, options: DoctorOptions, tell: Callable[[ToReport], None]) -> None:
    try:
        section: Section = importlib.import_module(module).section(options)
    except Exception as error:
        tell(Found(cannot_begin(error)))
        return
    try:
        for message in findings(section, skip, options.quick):
            tell(message)
    finally:
        section.close()


def main(descriptor: int, module: str, skip: int, options: DoctorOptions) -> None:
    threading.Thread(target=_end_when_alone, daemon=True).start()

    def tell(message: ToReport) -> None:
        os.write(descriptor, msgspec.json.encode(message) + b"\n")

    _run(module, skip, options, tell)
    tell(Done())
    os._exit(0)  # a device that hangs must not keep it


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[4], type=DoctorOptions)
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), given)
