"""The files that clients have sent, and what came of batches: bounded, and each is a key's."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from bushel.server.batches.folder import BatchFolder
from bushel.server.batches.limits import BatchLimits
from bushel.server.batches.records import FileRecord, new_id
from bushel.server.callers import Caller
from bushel.server.errors import ApiError

_PREFIX = "file-"


def no_file(file_id: str) -> ApiError:
    return ApiError(404, f"No such File object: {file_id[:80]}", code="not_found", param="id")


def no_room() -> ApiError:
    return ApiError(
        413,
        "There is no room for more files. Delete some, or start the server with a larger "
        "--batch-disk.",
        code="no_room",
    )


class BatchFiles:
    """Belongs to the event loop; `store` may run in a thread."""

    def __init__(self, folder: BatchFolder, limits: BatchLimits, *, shared: bool):
        """shared: several keys use it; each leaves as much free as it takes."""
        self._folder = folder
        self._limits = limits
        self._shared = shared
        self._records = {record.id: record for record in folder.records("files", FileRecord)}
        self.growing = 0  # bytes of results that are not files yet, and of uploads

    @property
    def ids(self) -> set[str]:
        return set(self._records)

    def of(self, owner: str) -> Sequence[FileRecord]:
        """Of one key, the oldest first."""
        self._discard_expired()
        mine = [record for record in self._records.values() if record.owner == owner]
        return sorted(mine, key=lambda record: (record.created_at, record.id))

    def find(self, caller: Caller, file_id: str) -> FileRecord:
        """ApiError if there is none, or it is somebody else's."""
        record = self.get(file_id)
        if record is None or not caller.sees(record.owner):
            raise no_file(file_id)
        return record

    def get(self, file_id: str) -> FileRecord | None:
        self._discard_expired()
        return self._records.get(file_id)

    def content(self, record: FileRecord) -> Path:
        return self._folder.content(record.id)

    # -- adding ------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        used = sum(record.bytes for record in self._records.values())
        return self._limits.room - used - self.growing

    def require_room(self, owner: str, size: int) -> None:
        mine = sum(record.bytes for record in self._records.values() if record.owner == owner)
        free = self.free - size
        few = len(self._records) < self._limits.files
        if free < 0 or not few or (self._shared and mine + size > free):
            raise no_room()

    def store(self, data: bytes | memoryview) -> str:
        """Its content on disk, by the id that the file will have."""
        file_id = new_id(_PREFIX)
        with open(self._folder.content(file_id), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return file_id

    def add(
        self,
        file_id: str,
        owner: str,
        filename: str,
        purpose: str,
        seconds: int | None,
    ) -> FileRecord:
        """Of what is stored. seconds: that it is kept for; None: until it is deleted."""
        now = int(time.time())
        record = FileRecord(
            id=file_id,
            owner=owner,
            filename=filename,
            purpose=purpose,
            bytes=self._folder.content(file_id).stat().st_size,
            created_at=now,
            expires_at=None if seconds is None else now + seconds,
        )
        self._folder.write("files", record.id, record)
        self._records[record.id] = record
        return record

    def adopt(self, file_id: str, owner: str, filename: str, seconds: int | None) -> None:
        """Results become a file, once; empty ones none."""
        if file_id in self._records:
            return
        result, content = self._folder.result(file_id), self._folder.content(file_id)
        if result.exists():
            if not result.stat().st_size:
                result.unlink()
                return
            result.replace(content)
        if content.exists():
            self.add(file_id, owner, filename, "batch_output", seconds)

    def new_output_id(self) -> str:
        return new_id(_PREFIX)

    # -- leaving -----------------------------------------------------------------------------

    def delete(self, record: FileRecord) -> None:
        del self._records[record.id]
        self._folder.remove("files", record.id)
        self._folder.content(record.id).unlink(missing_ok=True)

    def _discard_expired(self) -> None:
        for record in [record for record in self._records.values() if record.expired]:
            self.delete(record)
