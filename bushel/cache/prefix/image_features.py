"""What the vision tower made of images, by their digest, under the same budget as the tree."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from bushel.cache.prefix.memory_budget import MemoryBudget

_Record = Mapping[str, mx.array]
_Name = tuple[str, str]  # salt and digest


class ImagePart:
    """Fulfils `models.model.Features` for requests of one salt."""

    def __init__(self, shelf: ImageFeatures, root: str):
        self._shelf, self._root = shelf, root

    def get(self, digest: str) -> _Record | None:
        return self._shelf.get((self._root, digest))

    def put(self, digest: str, arrays: _Record) -> None:
        self._shelf.put((self._root, digest), arrays)


class ImageFeatures:
    def __init__(self, budget: MemoryBudget):
        self._budget = budget
        self._records: dict[_Name, _Record] = {}
        self.used = False  # whether there was ever anything
        self._recency = budget.queue(self._drop)
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def get(self, name: _Name) -> _Record | None:
        record = self._records.get(name)
        if record is not None:
            self._recency.touch(name, self._budget.tick())
        return record

    def put(self, name: _Name, arrays: _Record) -> None:
        size = _size(arrays)
        if name in self._records or not self._budget.make_room(size, len(arrays)):
            return
        self._budget.take(size, len(arrays))
        self.nbytes += size
        self._records[name] = arrays
        self.used = True
        self._recency.touch(name, self._budget.tick())

    def clear(self) -> None:
        for name in list(self._records):
            self._drop(name)

    def _drop(self, name: _Name) -> None:
        record = self._records.pop(name)
        self._recency.remove(name)
        self.nbytes -= _size(record)
        self._budget.give(_size(record), len(record))


def _size(record: _Record) -> int:
    return sum(array.nbytes for array in record.values())
