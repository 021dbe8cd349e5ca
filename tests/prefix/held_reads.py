"""A disk whose reads take as long as a test wants."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from bushel.cache.prefix.disk.folder import Folder


@contextmanager
def held_reads() -> Iterator[threading.Event]:
    """Reads end when the event is set, and not before; they go through it at the end."""
    go, read = threading.Event(), Folder.read

    def late(folder: Folder, name: str) -> Any:
        assert go.wait(60), "nobody lets the reads go"
        return read(folder, name)

    with patch.object(Folder, "read", late):
        try:
            yield go
        finally:
            go.set()
