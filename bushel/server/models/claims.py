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
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bushel.core import BushelError, ModelError

VARIABLE = "BUSHEL_RUNTIME_DIR"
_SIZE = 512  # bytes of a record, so that each is written in one go
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


def runtime_folder() -> Path:
    """Of this user on this machine: homes may be shared by several."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "bushel" / (platform.node() or "here")


class ClaimBusy(OSError):
    """Another server holds the folder for longer than it should; try again."""


class Claims:
    """The folder. What changes it is done inside of `locked`."""

    def __init__(self, folder: Path | None = None):
        self._folder = _made(folder or runtime_folder())
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
        descriptor = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ticket = MemoryTicket(name, descriptor, self._folder)
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
            if (record := _read(path)) is not None:
                found.append(SeenClaim(path.name, record, False))
        return sorted(found, key=lambda claim: (claim.record.since, claim.name))


class MemoryTicket:
    """One claim of this process. `descriptor` is for its engine to inherit."""

    record: ClaimRecord

    def __init__(self, name: str, descriptor: int, folder: Path):
        self.name = name
        self.descriptor = descriptor
        self._folder = folder

    def write(self, record: ClaimRecord) -> None:
        self.record = record
        os.pwrite(self.descriptor, msgspec.json.encode(record).ljust(_SIZE), 0)

    def grant(self, size: int) -> None:
        self.write(msgspec.structs.replace(self.record, granted=size))

    def close(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._folder / self.name).unlink()
        os.close(self.descriptor)


def _made(folder: Path) -> Path:
    """Where it cannot be, at another place that this user's servers find."""
    places = folder, Path(tempfile.gettempdir()) / f"bushel-{os.getuid()}"
    for place in places:
        with contextlib.suppress(OSError):
            claims = place / "claims"
            claims.mkdir(mode=0o700, parents=True, exist_ok=True)
            if claims.stat().st_uid == os.getuid() and os.access(claims, os.W_OK):
                return claims
    raise BushelError(
        f"No folder for claims on memory can be made: {folder}. Set {VARIABLE} to one that can."
    )


def _lock(descriptor: int) -> None:
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise ClaimBusy(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
            time.sleep(0.001)


def _read(path: Path) -> ClaimRecord | None:
    """None, and the file is gone, if nobody holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(os.pread(descriptor, _SIZE, 0), type=ClaimRecord)
    else:
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    return None


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
