"""Records in files of this user on this machine, each locked for as long as it is somebody's.

A lock belongs to the open file and not to a process: it lasts until everyone who inherited the
descriptor is gone, however they end, and a file without a lock is of nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import tempfile
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from bushel.core.errors import BushelError

VARIABLE = "BUSHEL_RUNTIME_DIR"
_SIZE = 512  # bytes of a record, so that each is written in one go

Record = TypeVar("Record", bound=msgspec.Struct)


def runtime_folder() -> Path:
    """Of this user on this machine: homes may be shared by several."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "bushel" / (platform.node() or "here")


def held_folder(name: str, folder: Path | None = None) -> Path:
    """Made if need be. Where it cannot be, at another place that this user's processes find."""
    folder = folder or runtime_folder()
    places = folder, Path(tempfile.gettempdir()) / f"bushel-{os.getuid()}"
    for place in places:
        with contextlib.suppress(OSError):
            made = place / name
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
            if made.stat().st_uid == os.getuid() and os.access(made, os.W_OK):
                return made
    raise BushelError(
        f"Cannot create a folder for {name} in {folder}. Set {VARIABLE} to a writable directory."
    )


class HeldFile(Generic[Record]):
    """A record of this process."""

    record: Record

    def __init__(self, path: Path):
        self.name = path.name
        self._path = path
        self.descriptor = _held(path)

    def write(self, record: Record) -> None:
        self.record = record
        os.pwrite(self.descriptor, msgspec.json.encode(record).ljust(_SIZE), 0)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self.descriptor)


def _held(path: Path) -> int:
    """A descriptor with the lock of the file that has this name: whoever read it before it was
    locked took it for nobody's, and removed it.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


def read_held(path: Path, kind: type[Record]) -> Record | None:
    """None, and the file is gone, if nobody holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(os.pread(descriptor, _SIZE, 0), type=kind)
    else:
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    return None
