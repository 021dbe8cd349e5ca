"""Ends a process and all that it has started, each by its own id."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import defaultdict


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have; parents come first."""
    command = ["ps", "-A", "-o", "pid=,ppid="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    children = defaultdict(list)
    for line in listed.splitlines():
        one, parent = map(int, line.split())
        children[parent].append(one)
    found = [pid]
    for each in found:  # grows meanwhile
        found += children[each]
    return found[1:]


def kill(pids: list[int]) -> None:
    """Also those that are stopped. Parents come first, so that nobody is replaced."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
