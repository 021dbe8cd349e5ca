"""What is known of a file and of a batch, as it is kept on disk."""

from __future__ import annotations

import time
import uuid
from typing import Literal

import msgspec

BatchStatus = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]
ENDED: frozenset[BatchStatus] = frozenset({"failed", "completed", "expired", "cancelled"})


def new_id(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex}"


class FileRecord(msgspec.Struct, kw_only=True):
    """owner: the key, covered, of whoever may read it."""

    id: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int | None = None

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= time.time()


class LineError(msgspec.Struct):
    """Why a file is no batch. line: which of its lines is wrong, from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchRecord(msgspec.Struct, kw_only=True):
    """times: when it got to each status. ending: the status that it will have when its results are
    files. The names of its files are chosen when it is made, so that ending it twice makes them
    once.
    """

    id: str
    owner: str
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    expires_at: int
    output_file_id: str
    error_file_id: str
    status: BatchStatus = "validating"
    ending: BatchStatus = "completed"
    output_seconds: int | None = None  # that its files are kept for; None: until they are deleted
    metadata: dict[str, str] | None = None
    errors: list[LineError] = []
    total: int = 0
    completed: int = 0
    failed: int = 0
    times: dict[str, int] = {}

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    def enter(self, status: BatchStatus) -> None:
        self.status = status
        self.times = {**self.times, status: int(time.time())}
