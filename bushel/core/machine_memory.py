"""The machine's memory, and how the server's processes share it.

| the engine: weights, rows, prefixes | workers: each itself and a job | the front | the rest |
0 ..................................................................................... total
"""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_UNKNOWN = 8 << 30  # where nobody says

# Of a job in a preparing worker: a sixteenth of the machine, within these bounds.
_LEAST_JOB, _MOST_JOB = 256 << 20, 2 << 30
_WORKER = 512 << 20  # itself; measured: 0.13 GB with a small tokenizer, 0.4 GB with a large one
_FRONT = 1280 << 20  # itself, and the tensors of requests that wait (`service._HELD_BYTES`)


def total_memory() -> int:
    """Bytes of this machine, or of the container this runs in."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        total = _UNKNOWN
    try:
        return min(total, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return total


def job_memory(total: int) -> int:
    """Bytes that preparing one request may take, beside its worker itself."""
    return max(_LEAST_JOB, min(_MOST_JOB, total // 16))


def beside_engine(workers: int, job: int) -> int:
    """Bytes that the other processes may take at most."""
    return _FRONT + workers * (_WORKER + job)
