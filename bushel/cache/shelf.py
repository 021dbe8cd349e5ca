"""What the vision tower made of images, by their digest, under the same budget as the tree."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from bushel.cache.budget import Budget

_Record = Mapping[str, mx.array]


class Shelf:
    """Fulfils `models.adapter.Features`."""

    def __init__(self, budget: Budget):
        self._budget = budget
        self._records: dict[str, _Record] = {}
        self._recency = budget.queue(self._drop)
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def get(self, digest: str) -> _Record | None:
        record = self._records.get(digest)
        if record is not None:
            self._recency.touch(digest, self._budget.tick())
        return record

    def put(self, digest: str, arrays: _Record) -> None:
        size = _size(arrays)
        if digest in self._records or not self._budget.make_room(size, len(arrays)):
            return
        self._budget.take(size, len(arrays))
        self.nbytes += size
        self._records[digest] = arrays
        self._recency.touch(digest, self._budget.tick())

    def clear(self) -> None:
        for digest in list(self._records):
            self._drop(digest)

    def _drop(self, digest: str) -> None:
        record = self._records.pop(digest)
        self._recency.remove(digest)
        self.nbytes -= _size(record)
        self._budget.give(_size(record), len(record))


def _size(record: _Record) -> int:
    return sum(array.nbytes for array in record.values())
