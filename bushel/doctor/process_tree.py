"""The processes that a process has started: which there are, what they take, and their end.

Each is ended by its own id. A Mac has no /proc, and small containers have no ps.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

_PROC = Path("/proc")


def descendants(pid: int) -> list[int]:
    """Those that a process has started, and those that they have; parents come first."""
    children = defaultdict(list)
    for one, parent in _pairs():
        children[parent].append(one)
    found = [pid]
    for each in found:  # grows meanwhile
        found += children[each]
    return found[1:]


def _pairs() -> Iterator[tuple[int, int]]:
    """Every process and its parent."""
    if not (_PROC / "self" / "stat").exists():
        for line in _ps("-A", "-o", "pid=,ppid=").splitlines():
            one, parent = map(int, line.split())
            yield one, parent
        return
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # The name may hold anything but ends with the last bracket.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            yield int(folder.name), int(fields[1])


def resident(pids: Iterable[int]) -> int:
    """Bytes of memory that they take together."""
    if not (_PROC / "self" / "statm").exists():
        return sum(map(int, _ps("-o", "rss=", "-p", ",".join(map(str, pids))).split())) << 10
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            pages += int((_PROC / str(pid) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], capture_output=True, text=True).stdout


def kill(pids: Iterable[int]) -> None:
    """Also those that are stopped. Parents come first, so that nobody is replaced."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
