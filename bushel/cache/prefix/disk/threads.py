"""The two threads that do the disk's work, and what they have to say.

Writes, removals and stamps run in the order in which they were asked for; reads run beside
them. The threads touch nothing but files and a file's draft, and raise nothing.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from bushel.cache.prefix.disk.file_format import UnusableFile
from bushel.cache.prefix.disk.folder import Folder
from bushel.cache.prefix.disk.index import IndexedFile
from bushel.cache.prefix.disk.pending_read import PendingRead

# The file may be perfectly good.
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN}

_Jobs = SimpleQueue[Callable[[], None] | None]


@dataclass(frozen=True)
class Lost:
    """An entry cannot be used; `cause` is damaged or failed."""

    file: IndexedFile
    cause: str
    why: str


@dataclass(frozen=True)
class Stuck:
    """A file could not be removed."""

    name: str
    nbytes: int
    why: str


class Threads:
    def __init__(self, folder: Folder):
        self.news: deque[Lost | Stuck | PendingRead] = deque()  # a reading that is done
        self.read_done = threading.Event()
        self.written = self.read_count = 0
        self._queued = self._unqueued = 0  # bytes so far; the second is the writer's alone
        self._folder = folder
        self._closed = False
        self._to_write: _Jobs = SimpleQueue()
        self._to_read: _Jobs = SimpleQueue()
        self._writer = _start("disk-writer", self._to_write)
        self._reader = _start("disk-reader", self._to_read)

    @property
    def queued_bytes(self) -> int:
        return self._queued - self._unqueued

    def write(self, file: IndexedFile) -> None:
        self._queued += file.nbytes
        self._to_write.put(partial(self._do_write, file, file.stamp))

    def unlink(self, name: str, nbytes: int) -> None:
        self._to_write.put(partial(self._do_unlink, name, nbytes))

    def stamp(self, touched: list[tuple[str, int]]) -> None:
        self._to_write.put(partial(self._do_stamp, touched))

    def read(self, file: IndexedFile, reading: PendingRead) -> None:
        self._to_read.put(partial(self._do_read, file, reading))

    def flush(self, timeout: float) -> bool:
        done = threading.Event()
        self._to_write.put(done.set)
        return done.wait(timeout)

    def close(self, patience: float, hurry: Callable[[], None]) -> bool:
        """Whether both have ended. `hurry` is called when `patience` seconds are over."""
        self._closed = True
        self._to_write.put(None)
        self._to_read.put(None)
        self._writer.join(patience)
        if self._writer.is_alive():
            hurry()
            self._writer.join(1.0)
        self._reader.join(1.0)
        return not self._writer.is_alive() and not self._reader.is_alive()

    # -- on the threads --------------------------------------------------------------------

    def _do_write(self, file: IndexedFile, stamp: int) -> None:
        try:
            if (draft := file.draft) is not None:
                self._folder.write(file.name, draft, stamp)
                self.written += 1
        except Exception as error:
            self.news.append(Lost(file, "failed", f"it cannot be written: {_told(error)}"))
        finally:
            file.draft = None
            self._unqueued += file.nbytes

    def _do_read(self, file: IndexedFile, reading: PendingRead) -> None:
        why = "the disk tier is closed"
        try:
            if not self._closed:
                entry, reading.arrays = self._folder.read(file.name)
                reading.start, reading.key = entry.start, entry.key
                self.read_count += 1
                why = ""
        except UnusableFile as error:
            why = str(error)
            self.news.append(Lost(file, "damaged", why))
        except Exception as error:  # whatever it is, nobody may wait for this reading forever
            why = f"it cannot be read: {_told(error)}"
            if getattr(error, "errno", None) not in _PASSING and not isinstance(error, MemoryError):
                self.news.append(Lost(file, "failed", why))
        reading.why = why
        self.news.append(reading)
        reading.done = True
        self.read_done.set()

    def _do_unlink(self, name: str, nbytes: int) -> None:
        try:
            self._folder.unlink(name)
        except OSError as error:
            self.news.append(Stuck(name, nbytes, _told(error)))

    def _do_stamp(self, touched: list[tuple[str, int]]) -> None:
        for name, stamp in touched:
            try:
                self._folder.stamp(name, stamp)
            except (OSError, OverflowError, UnusableFile):
                continue  # a read will say what is wrong with it


def _told(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def _start(name: str, jobs: _Jobs) -> threading.Thread:
    def work() -> None:
        while (job := jobs.get()) is not None:
            job()
            del job  # or the last reading stays in memory until the next one

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
