"""Who may use how much of this machine's memory, in files that all servers of a user share.

    claims/lock          held while somebody reads and writes the others
    claims/4711-0        need, granted, since; locked for as long as its engine may hold memory

A lock belongs to the open file and not to a process. The front makes it and hands the descriptor
to the engine, so it lasts until both are gone, however they end, and a file without a lock is of
nobody. A granted limit is raised before its engine is told of it, and lowered when its engine keeps
to it: so all that is granted stays below the machine's limit at every moment.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bushel.core import ModelError
from bushel.core.held_files import HeldFile, held_folder, read_held

_LOCK_SECONDS = 0.2  # others hold it for less than a millisecond
_serial = itertools.count()
# Beside its weights, what a model should have to serve a few requests: a tenth of them, and this.
# Rows and prefixes have more wherever there is more.
_ROOM = 512 << 20
KEPT_FREE = 20  # an engine leaves one part in so many of its limit alone
SLACK = 50  # a share that differs by less than one part in so many is left as it is
CROWDED = 10.0  # seconds that others have to make room


class ClaimRecord(msgspec.Struct, frozen=True):
    need: int  # bytes without which it cannot serve
    granted: int  # bytes it may use now; 0: it waits for its need
    since: float  # when it was made, by the clock of the wall
    server: int  # process
    model: str


@dataclass(frozen=True)
class SeenClaim:
    name: str
    record: ClaimRecord
    own: bool  # of this process


class ClaimBusy(OSError):
    """Another server holds the folder for longer than it should; try again."""


class Claims:
    """The folder. What changes it is done inside of `locked`."""

    def __init__(self, folder: Path | None = None):
        self._folder = held_folder("claims", folder)
        self._own: dict[str, MemoryTicket] = {}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def add(self, model: str, need: int) -> MemoryTicket:
        """A claim that waits."""
        name = f"{os.getpid()}-{next(_serial)}"
        ticket = MemoryTicket(self._folder / name)
        ticket.write(ClaimRecord(need, 0, time.time(), os.getpid(), model[:128]))
        self._own[name] = ticket
        return ticket

    def release(self, ticket: MemoryTicket) -> None:
        self._own.pop(ticket.name, None)
        ticket.close()

    def all(self) -> list[SeenClaim]:
        """In the order in which they were made. What nobody holds any more is removed."""
        found = [SeenClaim(name, own.record, True) for name, own in self._own.items()]
        for path in self._folder.iterdir():
            if path.name == "lock" or path.name in self._own:
                continue
            if (record := read_held(path, ClaimRecord)) is not None:
                found.append(SeenClaim(path.name, record, False))
        return sorted(found, key=lambda claim: (claim.record.since, claim.name))


class MemoryTicket(HeldFile[ClaimRecord]):
    """One claim of this process. `descriptor` is for its engine to inherit."""

    def grant(self, size: int) -> None:
        self.write(msgspec.structs.replace(self.record, granted=size))


def _lock(descriptor: int) -> None:
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise ClaimBusy(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
            time.sleep(0.001)


def need_of(weights: int, limit: int) -> int:
    """Bytes without which a model of such weights cannot serve, where so many may be used."""
    return min(limit, (weights + weights // 10 + _ROOM) * KEPT_FREE // (KEPT_FREE - 1))


def crowded_out(need: int, others: int, machine: int) -> ModelError:
    """others: bytes that they need, of those that the machine has."""
    return ModelError(
        f"The model needs {need / 1e9:.2f} GB, and other Bushel processes on this machine have "
        f"{others / 1e9:.2f} GB of the {machine / 1e9:.2f} GB that may be used."
    )


def share(limit: int, needs: Sequence[int], at: int) -> int:
    """Of a limit, what one of several gets: in proportion to what each needs."""
    return limit * needs[at] // max(1, sum(needs))
