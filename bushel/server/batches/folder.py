"""The folder of one server's files and batches: whose it is, and what lies in it.

    lock               held by the server that uses it, for as long as it runs
    files/ID           what a file says; files/ID.json says whose it is
    batches/ID.json    a batch
    results/ID         what has come of a batch that runs; it becomes one of the files

A record is written beside its place and moved there, so that it is whole or not there.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from bushel.core import BushelError

Record = TypeVar("Record", bound=msgspec.Struct)
_ID = re.compile("[a-z]+[-_][0-9a-f]{32}")
_RECORD = ".json"


class FolderInUse(BushelError):
    """Another server has it."""


class BatchFolder:
    def __init__(self, path: Path):
        """FolderInUse while another process has it; OSError if it cannot be made."""
        self.path = path
        for name in ("files", "batches", "results"):
            (path / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise FolderInUse(f"another server keeps its batches in {path}") from error

    def close(self) -> None:
        os.close(self._lock)

    def content(self, file_id: str) -> Path:
        return self.path / "files" / _checked(file_id)

    def result(self, file_id: str) -> Path:
        return self.path / "results" / _checked(file_id)

    def write(self, kind: str, id: str, record: msgspec.Struct) -> None:
        path = self.path / kind / f"{_checked(id)}{_RECORD}"
        new = path.with_suffix(".new")
        with open(new, "wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    def remove(self, kind: str, id: str) -> None:
        (self.path / kind / f"{_checked(id)}{_RECORD}").unlink(missing_ok=True)

    def records(self, kind: str, type: type[Record]) -> Iterator[Record]:
        """Those that can be read; what cannot is not ours, or of another version."""
        for path in (self.path / kind).glob(f"*{_RECORD}"):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=type)
            except (OSError, msgspec.DecodeError):
                continue
            if getattr(record, "id", None) == path.stem and _ID.fullmatch(path.stem):
                yield record

    def discard_strangers(self, known: set[str]) -> None:
        """Contents and results that no record is about: their server died before it wrote one."""
        for name in ("files", "batches", "results"):
            for path in (self.path / name).iterdir():
                if path.suffix == ".new" or (_ID.fullmatch(path.name) and path.name not in known):
                    path.unlink(missing_ok=True)


def _checked(id: str) -> str:
    """What is no id of ours is no name of a file either."""
    if not _ID.fullmatch(id):
        raise ValueError(f"not an id: {id[:80]!r}")
    return id
