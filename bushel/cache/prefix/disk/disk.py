"""The disk tier: files that the prefix tree names, written and read by threads of its own.

Words used here:
  edge       keys and values of tokens [start, end) of a path from the tree's root
  snapshot   the state of window and recurrent layers at one position of a path
  entry      a file with one of them; immutable, and named by what it is for, not by its arrays
  gone       an entry that the tree may still name and that is no longer there

One thread calls everything here, and never waits for the disk: a call changes the index at
once and queues the work. The threads that do it leave what went wrong as news, which the next
call takes in; so only the caller's thread ever changes the index.

Files change in the order in which they were asked to. So the bytes on disk stay below the
limit at every moment because those of the index do, and a kill leaves no more than orphans
and one unfinished file, which the next start removes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bushel.cache.prefix.disk import file_format
from bushel.cache.prefix.disk.file_format import Entry, FileDraft, HostArray, Kind
from bushel.cache.prefix.disk.folder import Folder
from bushel.cache.prefix.disk.index import Index, IndexedFile
from bushel.cache.prefix.disk.pending_read import PendingRead
from bushel.cache.prefix.disk.remove_old_layouts import remove_older
from bushel.cache.prefix.disk.threads import Lost, Stuck, Threads
from bushel.core import IntegrityError

log = logging.getLogger(__name__)

_LEVELS = {"damaged": logging.WARNING, "orphan": logging.WARNING, "limit": logging.INFO}


@dataclass(frozen=True)
class DiskStats:
    off: str  # why it keeps nothing, or empty
    limit: int  # bytes
    files: int
    bytes: int
    queued_bytes: int  # not yet written
    written: int  # files, since the start
    read: int
    removed: dict[str, int]  # by cause: limit, damaged, orphan, failed, asked
    refused: dict[str, int]  # writes, by cause: busy, limit, parent, off


class Disk:
    """The files of one namespace. `limit` counts all of them, those on their way too.

    A write is refused while more than `queue_bytes` wait to be written.

    off:   why this tier keeps nothing, or empty. Another process may be using the folder; one
           that is just ending is given `patience` seconds.
    found: what was complete at the start, parents before children. The owner may empty it.
    """

    def __init__(
        self,
        folder: Path,
        namespace: str,
        limit: int,
        *,
        queue_bytes: int = 1 << 30,
        patience: float = 5.0,
    ):
        self.off = ""
        self.found: list[Entry] = []
        self._namespace = namespace
        self._limit = limit
        self._queue_bytes = queue_bytes
        self._folder = Folder(folder, namespace)
        self._index = Index()
        self._stuck = 0  # bytes of files that could not be removed
        self._gone: dict[str, None] = {}
        self._readings: dict[str, PendingRead] = {}
        self._removed: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._said: set[str] = set()
        if self._folder.lock(patience):
            for older in remove_older(folder):
                log.info("Disk cache: removed %s: its layout is older.", older)
            self.found = self._scan()
        else:
            self.off = "another process uses its folder"
            log.warning("Disk cache is off: %s, %s.", self.off, self._folder.path)
        self._threads = Threads(self._folder)

    # -- for the tree ----------------------------------------------------------------------

    def write(
        self,
        kind: Kind,
        parent: str | None,
        start: int,
        key: np.ndarray,
        note: str,
        arrays: Mapping[str, HostArray],
    ) -> str | None:
        """The name of the entry, which can be read from now on; None if it was refused.

        The arrays' bytes must not change any more. An entry that is there already is touched.
        """
        self._settle()
        name = file_format.name_of(self._namespace, kind, parent, start, key)
        if self._index.get(name) is not None and not self.off:
            self.touch(name)
            return name
        above = self._index.get(parent)
        if (kind == "edge") != bool(len(key)) or (start == 0) != (parent is None):
            raise IntegrityError(f"disk tier: no {kind} of {len(key)} tokens can start at {start}")
        if above is not None and not above.carries(start):
            raise IntegrityError(f"disk tier: {start} is outside what it should stand on")
        draft = file_format.draft_file(self._namespace, kind, parent, start, key, note, arrays)
        if cause := self._refusal(parent, above, draft):
            self._refused[cause] += 1
            return None
        if above is not None:
            self._index.touch(above)  # so that what makes room is not among those above
        while self._index.nbytes + self._stuck + draft.nbytes > self._limit:
            self._drop(self._index.oldest(), "limit")
        file = IndexedFile(name, kind, above, start, len(key), draft.nbytes, draft=draft)
        self._index.add(file)
        _, *touched = self._index.touch(file)
        self._threads.write(file)
        self._threads.stamp(touched)
        self._gone.pop(name, None)
        return name

    def read(self, name: str) -> PendingRead:
        """Several reads of one name share one. It counts as a use."""
        self._settle()
        file = self._index.get(name)
        if self.off or file is None:
            return PendingRead(name, done=True, why=self.off or "it is not on disk")
        self.touch(name)
        if (draft := file.draft) is not None:
            key = np.frombuffer(draft.key, "<i8")
            return PendingRead(
                name, done=True, arrays=dict(draft.arrays), start=file.start, key=key
            )
        if name not in self._readings:
            self._readings[name] = PendingRead(name)
            self._threads.read(file, self._readings[name])
        return self._readings[name]

    def wait(self, timeout: float) -> bool:
        """For any read to be done; whether one was, since the last call."""
        done = self._threads.read_done.wait(timeout)
        self._threads.read_done.clear()
        return done

    def touch(self, name: str) -> None:
        """It was used, and so was everything above it: touch the lowest alone."""
        if (file := self._index.get(name)) is not None:
            self._threads.stamp(self._index.touch(file))

    def remove(self, name: str) -> None:
        """It and everything below it."""
        self._settle()
        if (file := self._index.get(name)) is not None:
            self._drop(file, "asked")

    def clear(self) -> None:
        self._settle()
        while len(self._index):
            self._drop(self._index.oldest(), "asked")

    def take_gone(self) -> list[str]:
        """Entries that went since the last call, whatever the cause, and did not come back."""
        self._settle()
        gone, self._gone = self._gone, {}
        return list(gone)

    # -- for who runs it -------------------------------------------------------------------

    @property
    def stats(self) -> DiskStats:
        return DiskStats(
            off=self.off,
            limit=self._limit,
            files=len(self._index),
            bytes=self._index.nbytes,
            queued_bytes=self._threads.queued_bytes,
            written=self._threads.written,
            read=self._threads.read_count,
            removed=dict(self._removed),
            refused=dict(self._refused),
        )

    def tokens(self, name: str) -> tuple[int, int] | None:
        """From where to where an entry has tokens of its path; None if it is not there."""
        file = self._index.get(name)
        return (file.start, file.start + file.tokens) if file is not None else None

    def flush(self, timeout: float) -> bool:
        """Wait until all that was asked for is done, reads excepted; whether it was."""
        self._settle()
        flushed = self._threads.flush(timeout)
        self._settle()
        return flushed

    def close(self, patience: float = 5.0) -> None:
        """Write what is queued, as far as `patience` seconds go. Reads end without a result."""
        if self.off == "it is closed":
            return
        self.off = "it is closed"
        self._settle()
        if self._threads.close(patience, self._index.forget_drafts):
            self._folder.close()

    def check_integrity(self) -> None:
        self._settle()
        self._index.check_integrity()
        if self._index.nbytes > self._limit:
            raise IntegrityError(f"disk tier: {self._index.nbytes} bytes of {self._limit}")
        if any(self._index.get(name) for name in self._gone):
            raise IntegrityError("disk tier: an entry is gone and there")

    # -- within ----------------------------------------------------------------------------

    def _scan(self) -> list[Entry]:
        stamped = []
        for file, what, stamp in self._folder.scan():
            if isinstance(what, str):
                self._discard(file, "damaged", what)
            else:
                stamped.append((what, stamp))
        for entry in self._index.load(stamped):
            self._discard(f"{entry.name}.safetensors", "orphan", "what it stands on is not there")
        while self._index.nbytes > self._limit:  # which may be lower than it was
            (oldest,) = self._index.drop(self._index.oldest())
            self._discard(f"{oldest.name}.safetensors", "limit", "the limit is reached")
        kept = (survivor for survivor, _ in stamped if self._index.get(survivor.name) is not None)
        return sorted(kept, key=lambda survivor: survivor.start)

    def _discard(self, file: str, cause: str, why: str) -> None:
        self._removed[cause] += 1
        try:
            self._folder.discard(file)
            log.log(_LEVELS[cause], "Disk cache: removed %s: %s.", file, why)
        except OSError as error:
            log.warning("Disk cache: no use for %s: %s; it stays: %s.", file, why, error.strerror)

    def _refusal(self, parent: str | None, above: IndexedFile | None, draft: FileDraft) -> str:
        if self.off:
            return "off"
        if parent is not None and above is None:
            return "parent"
        if self._threads.queued_bytes > self._queue_bytes:
            return "busy"
        path = sum(file.nbytes for file in above.path()) if above is not None else 0
        return "limit" if path + draft.nbytes + self._stuck > self._limit else ""

    def _drop(self, file: IndexedFile, cause: str) -> None:
        for gone in self._index.drop(file):
            self._gone[gone.name] = None
            self._removed[cause] += 1
            self._threads.unlink(gone.name, gone.nbytes)

    def _settle(self) -> None:
        """Take in the news. A file that fell out of the index meanwhile is none."""
        while self._threads.news:
            match self._threads.news.popleft():
                case Lost(file, cause, why):
                    if self._index.get(file.name) is file:
                        self._drop(file, cause)
                        self._say(file.name, why, always=cause == "damaged")
                case Stuck(name, nbytes, why):
                    self._stuck += nbytes
                    self._say(name, f"it cannot be removed: {why}")
                case PendingRead(name):
                    del self._readings[name]

    def _say(self, name: str, why: str, always: bool = False) -> None:
        """A full disk says so once and not with every file."""
        if always or why not in self._said:
            self._said.add(why)
            log.warning("Disk cache: lost %s: %s.", name, why)
