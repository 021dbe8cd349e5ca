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
        slot: IndexedFile | None = self
        while slot is not None:
            yield slot
            slot = slot.parent


class Index:
    def __init__(self) -> None:
        self._slots: OrderedDict[str, IndexedFile] = OrderedDict()
        self._clock = 0  # ns; every use has a stamp of its own
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, name: str | None) -> IndexedFile | None:
        return self._slots.get(name) if name is not None else None

    def names(self) -> list[str]:
        return list(self._slots)

    def load(self, stamped: Iterable[tuple[Entry, int]]) -> Iterator[Entry]:
        """Take in what a scan found with its stamps; yields what stands on nothing."""
        slots = []
        for entry, stamp in sorted(stamped, key=lambda pair: pair[0].start):
            parent = self.get(entry.parent)
            if entry.parent is not None and (parent is None or not parent.carries(entry.start)):
                yield entry
                continue
            tokens = len(entry.key)
            slot = IndexedFile(
                entry.name, entry.kind, parent, entry.start, tokens, entry.nbytes, stamp
            )
            self.add(slot)
            slots.append(slot)
        for slot in reversed(slots):  # a kill can lose the stamps of those above
            if slot.parent is not None:
                slot.parent.stamp = max(slot.parent.stamp, slot.stamp + 1)
        for slot in sorted(slots, key=lambda file: file.stamp):
            self._slots.move_to_end(slot.name)
            self._clock = max(self._clock, slot.stamp)

    def add(self, slot: IndexedFile) -> None:
        """It must be touched before anything else happens."""
        self._slots[slot.name] = slot
        self.nbytes += slot.nbytes
        if slot.parent is not None:
            slot.parent.below.add(slot)

    def touch(self, slot: IndexedFile) -> list[tuple[str, int]]:
        """Names with their new stamps, upwards."""
        touched = []
        self._clock = max(self._clock, time.time_ns())
        for file in slot.path():
            self._clock += 1
            file.stamp = self._clock
            self._slots.move_to_end(file.name)
            touched.append((file.name, file.stamp))
        return touched

    def oldest(self) -> IndexedFile:
        return next(iter(self._slots.values()))

    def drop(self, slot: IndexedFile) -> list[IndexedFile]:
        """It and everything below; what stands on something comes before it."""
        dropped = [slot]
        for file in dropped:  # grows
            dropped.extend(file.below)
        if slot.parent is not None:
            slot.parent.below.discard(slot)
        for file in dropped:
            del self._slots[file.name]
            self.nbytes -= file.nbytes
            file.draft = None
        return dropped[::-1]

    def forget_drafts(self) -> None:
        for slot in self._slots.values():
            slot.draft = None

    def check_integrity(self) -> None:
        seen: set[IndexedFile] = set()
        for name, slot in self._slots.items():
            _require(slot.name == name, f"{name} is filed under another name")
            _require(slot.below <= seen, f"{name} was used before what stands on it")
            _require(all(child.parent is slot for child in slot.below), f"{name} has lost a child")
            if slot.parent is None:
                _require(slot.start == 0, f"{name} starts at {slot.start} on nothing")
            else:
                _require(self.get(slot.parent.name) is slot.parent, f"{name} is an orphan")
                _require(slot in slot.parent.below, f"{name} is unknown to its parent")
                _require(slot.parent.carries(slot.start), f"{name} is outside its parent")
                _require(slot.stamp < slot.parent.stamp, f"{name} is newer than its parent")
            seen.add(slot)
        _require(self.nbytes == sum(file.nbytes for file in seen), "the bytes do not add up")


def _require(ok: bool, what: str) -> None:
    if not ok:
        raise IntegrityError(f"disk tier: {what}")
