"""One read that is under way."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bushel.cache.prefix.disk.file_format import HostArray


@dataclass(eq=False)
class PendingRead:
    """Set by the reading thread, `done` last; from then on `arrays` is there or `why` says.

    The arrays are views of one buffer: who keeps one keeps them all in memory.
    """

    name: str
    done: bool = False
    arrays: dict[str, HostArray] | None = None
    why: str = ""
    start: int = 0  # tokens before it
    key: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # its tokens
