"""How much may be kept of files and batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchLimits:
    """Of one server; what one batch may have is what OpenAI allows it."""

    room: int  # bytes of all files
    files: int = 10_000
    batches: int = 1_000  # beyond that, those that ended longest ago are forgotten
    waiting: int = 100  # batches of one owner that have not ended
    lines: int = 50_000  # of one batch
    errors: int = 100  # of a file's lines that are told
    id_length: int = 512  # characters of a custom_id
    losses: int = 5  # of engines that had a line, before it is given up
