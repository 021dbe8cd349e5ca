"""Which files there are, which stands on which, and which was used least recently.

Only the thread that calls `Disk` touches it. Whoever uses a file uses all above it, and those
count as used a moment later; so the order of use never has a file before one that stands on it:

    A ── B ── C        touch(C)        order: ... C B A      the first is always a leaf,
         └─── D        touch(D)        order: C ... D B A    and can go without making orphans
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bushel.cache.prefix.disk.file_format import Entry, FileDraft, Kind
from bushel.core import IntegrityError


@dataclass(eq=False)
class IndexedFile:
    """A file, on disk or on its way: `draft` is what the writing thread has still to write."""

    name: str
    kind: Kind
    parent: IndexedFile | None
    start: int
    tokens: int
    nbytes: int
    stamp: int = 0
    draft: FileDraft | None = None
    below: set[IndexedFile] = field(default_factory=set)

    def carries(self, start: int) -> bool:
        """Whether something that starts there can stand on it."""
        return self.kind == "edge" and self.start < start <= self.start + self.tokens

    def path(self) -> Iterator[IndexedFile]:
        """Itself and all above it, upwards."""
        file: IndexedFile | None = self
        while file is not None:
            yield file
            file = file.parent


class Index:
    def __init__(self) -> None:
        self._files: OrderedDict[str, IndexedFile] = OrderedDict()
        self._clock = 0  # ns; every use has a stamp of its own
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._files)

    def get(self, name: str | None) -> IndexedFile | None:
        return self._files.get(name) if name is not None else None

    def names(self) -> list[str]:
        return list(self._files)

    def load(self, stamped: Iterable[tuple[Entry, int]]) -> Iterator[Entry]:
        """Take in what a scan found with its stamps; yields what stands on nothing."""
        files = []
        for entry, stamp in sorted(stamped, key=lambda pair: pair[0].start):
            parent = self.get(entry.parent)
            if entry.parent is not None and (parent is None or not parent.carries(entry.start)):
                yield entry
                continue
            tokens = len(entry.key)
            file = IndexedFile(
                entry.name, entry.kind, parent, entry.start, tokens, entry.nbytes, stamp
            )
            self.add(file)
            files.append(file)
        for file in reversed(files):  # a kill can lose the stamps of those above
            if file.parent is not None:
                file.parent.stamp = max(file.parent.stamp, file.stamp + 1)
        for file in sorted(files, key=lambda file: file.stamp):
            self._files.move_to_end(file.name)
            self._clock = max(self._clock, file.stamp)

    def add(self, file: IndexedFile) -> None:
        """It must be touched before anything else happens."""
        self._files[file.name] = file
        self.nbytes += file.nbytes
        if file.parent is not None:
            file.parent.below.add(file)

    def touch(self, file: IndexedFile) -> list[tuple[str, int]]:
        """Names with their new stamps, upwards."""
        touched = []
        self._clock = max(self._clock, time.time_ns())
        for one in file.path():
            self._clock += 1
            one.stamp = self._clock
            self._files.move_to_end(one.name)
            touched.append((one.name, one.stamp))
        return touched

    def oldest(self) -> IndexedFile:
        return next(iter(self._files.values()))

    def drop(self, file: IndexedFile) -> list[IndexedFile]:
        """It and everything below; what stands on something comes before it."""
        dropped = [file]
        for one in dropped:  # grows
            dropped.extend(one.below)
        if file.parent is not None:
            file.parent.below.discard(file)
        for one in dropped:
            del self._files[one.name]
            self.nbytes -= one.nbytes
            one.draft = None
        return dropped[::-1]

    def forget_drafts(self) -> None:
        for file in self._files.values():
            file.draft = None

    def check_integrity(self) -> None:
        seen: set[IndexedFile] = set()
        for name, file in self._files.items():
            _require(file.name == name, f"{name} is filed under another name")
            _require(file.below <= seen, f"{name} was used before what stands on it")
            _require(all(child.parent is file for child in file.below), f"{name} has lost a child")
            if file.parent is None:
                _require(file.start == 0, f"{name} starts at {file.start} on nothing")
            else:
                _require(self.get(file.parent.name) is file.parent, f"{name} is an orphan")
                _require(file in file.parent.below, f"{name} is unknown to its parent")
                _require(file.parent.carries(file.start), f"{name} is outside its parent")
                _require(file.stamp < file.parent.stamp, f"{name} is newer than its parent")
            seen.add(file)
        _require(self.nbytes == sum(file.nbytes for file in seen), "the bytes do not add up")


def _require(ok: bool, what: str) -> None:
    if not ok:
        raise IntegrityError(f"disk tier: {what}")
