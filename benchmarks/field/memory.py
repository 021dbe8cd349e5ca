"""The most memory that a process and those it started take during a load.

On an NVIDIA GPU it is looked at every 0.2 s; of processes without a GPU Linux keeps the high-water
mark, which is set back when a load begins. Where it cannot be set back, they are looked at, too.
Marks of several processes are added up, though they need not have been reached at once.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

EVERY = 0.2  # seconds


class PeakWatch:
    """From when it is entered until it is left. peak: bytes."""

    def __init__(self, pid: int):
        self.peak = 0
        self._pid = pid
        self._noted = False  # high-water marks are of this load alone
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_again, daemon=True)

    def __enter__(self) -> Self:
        self._noted = _forget_peaks(_family(self._pid))
        if _gpu_bytes() or not self._noted:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._look()

    def _look_again(self) -> None:
        while not self._done.wait(EVERY):
            self._look()

    def _look(self) -> None:
        self.peak = max(self.peak, memory_of(self._pid, self._noted))


def memory_of(pid: int, noted: bool) -> int:
    """Bytes of a process and those it started: what they have on an NVIDIA GPU, else what is
    resident; with noted, the most that was since marks were set back."""
    family, on_gpu = _family(pid), _gpu_bytes()
    kib = {one: _high_water_kib(one) or now if noted else now for one, now in family.items()}
    return sum(on_gpu.get(one, 1024 * kib[one]) for one in family)


def _family(pid: int) -> dict[int, int]:
    """A process and those it started, with the KiB of each that are resident now."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,rss="], capture_output=True, check=True)
    rows = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    family, grown = {pid}, True
    while grown:
        more = {child for child, parent, _ in rows if parent in family} - family
        family, grown = family | more, bool(more)
    return {one: size for one, _, size in rows if one in family}


def _forget_peaks(pids: Iterable[int]) -> bool:
    """Sets their high-water marks to what they have now; false where that cannot be done."""
    try:
        for pid in pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _high_water_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def _gpu_bytes() -> dict[int, int]:
    """By process, where there is an NVIDIA GPU."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(query, capture_output=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = (line.split(b",") for line in listed.stdout.splitlines() if b"," in line)
    return {int(pid): int(size) << 20 for pid, size in rows if size.strip().isdigit()}
