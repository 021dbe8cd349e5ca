"""What has come of a batch so far: a line for every request, appended when it is answered.

A line is written whole or is cut off: of a server that dies while it writes, the next one finds all
lines but the torn one, and asks that request again. So each is answered exactly once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from bushel.server.batches.records import new_id


class _Written(msgspec.Struct):
    custom_id: str


_decode = msgspec.json.Decoder(_Written).decode


class ResultFile:
    """Good answers or bad ones."""

    def __init__(self, path: Path):
        self.answered: set[str] = set()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = self._whole_lines(path)
        os.ftruncate(self._file, self.size)

    def _whole_lines(self, path: Path) -> int:
        """Bytes of the lines that were written to their ends."""
        size = 0
        with open(path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    self.answered.add(_decode(line).custom_id)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    break
                size += len(line)
        return size

    def add(self, custom_id: str, line: bytes) -> None:
        """OSError if it cannot be written; then nothing of it is."""
        at, rest = self.size, memoryview(line)
        try:
            while rest:
                written = os.pwrite(self._file, rest, at)
                at, rest = at + written, rest[written:]
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size = at
        self.answered.add(custom_id)

    def close(self) -> None:
        os.fsync(self._file)
        os.close(self._file)


class BatchResults:
    """Both files of a batch. In a thread: opening them reads them."""

    def __init__(self, output: Path, errors: Path):
        self.output = ResultFile(output)
        self.errors = ResultFile(errors)

    def __contains__(self, custom_id: str) -> bool:
        return custom_id in self.output.answered or custom_id in self.errors.answered

    @property
    def size(self) -> int:
        return self.output.size + self.errors.size

    def answer(self, custom_id: str, status: int, request_id: str, body: bytes) -> None:
        response = {"status_code": status, "request_id": request_id, "body": msgspec.Raw(body)}
        good = 200 <= status < 300
        self._add(self.output if good else self.errors, custom_id, response, None)

    def give_up(self, custom_id: str, code: str, message: str) -> None:
        self._add(self.errors, custom_id, None, {"code": code, "message": message})

    def _add(self, file: ResultFile, custom_id: str, response: Any, error: Any) -> None:
        line = {
            "id": new_id("batch_req_"),
            "custom_id": custom_id,
            "response": response,
            "error": error,
        }
        file.add(custom_id, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        self.output.close()
        self.errors.close()
