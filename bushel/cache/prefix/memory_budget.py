"""One promise of memory over several sorts of things that can be dropped and made again.

Each sort has its own recency; what goes first is whatever was not used for longest, of any sort.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from bushel.core import IntegrityError

T = TypeVar("T")
_Use = tuple[int, int]  # its tick, and a number of its own

# Stale entries of a heap, as a multiple of the live ones, before it is written anew.
_STALE = 4


def _always(_: Any) -> bool:
    return True


class Recency(Generic[T]):
    """Who was not used for longest, in O(log n).

    `may_go` can be false of an item for a while; `offer` says that it may be true again.
    """

    def __init__(self, evict: Callable[[T], None], may_go: Callable[[T], bool] = _always):
        self.evict = evict
        self._may_go = may_go
        self._uses: dict[T, _Use] = {}  # the last of each
        self._users: dict[_Use, T] = {}
        self._heap: list[_Use] = []  # not the items: what has been removed is to be freed
        self._order = itertools.count()  # so that no two uses are the same

    def __len__(self) -> int:
        return len(self._uses)

    def __contains__(self, item: T) -> bool:
        return item in self._uses

    def touch(self, item: T, tick: int) -> None:
        self.remove(item)
        use = tick, next(self._order)
        self._uses[item] = use
        self._users[use] = item
        self.offer(item)

    def offer(self, item: T) -> None:
        if item in self._uses and self._may_go(item):
            heapq.heappush(self._heap, self._uses[item])
            if len(self._heap) > _STALE * (len(self._uses) + 16):
                self._heap = [use for use in self._heap if use in self._users]
                heapq.heapify(self._heap)

    def remove(self, item: T) -> None:
        use = self._uses.pop(item, None)
        if use is not None:
            del self._users[use]

    def oldest(self) -> tuple[int, T] | None:
        """Tick and item, of those that may go."""
        while self._heap:
            use = self._heap[0]
            if use in self._users and self._may_go(self._users[use]):
                return use[0], self._users[use]
            heapq.heappop(self._heap)
        return None


class MemoryBudget:
    """Bytes and buffers in use never exceed their limits."""

    def __init__(self, limit: int, buffer_limit: int):
        self.limit, self.buffer_limit = limit, buffer_limit
        self.bytes = self.buffers = 0
        self.evicted = 0
        self._queues: list[Recency[Any]] = []
        self._ticks = itertools.count(1)

    def queue(
        self, evict: Callable[[Any], None], may_go: Callable[[Any], bool] = _always
    ) -> Recency[Any]:
        """A sort of things; `evict` must `give` back what the thing took."""
        queue: Recency[Any] = Recency(evict, may_go)
        self._queues.append(queue)
        return queue

    def tick(self) -> int:
        return next(self._ticks)

    def take(self, size: int, buffers: int) -> None:
        """After `make_room` for it."""
        self.bytes += size
        self.buffers += buffers
        if self.bytes > self.limit or self.buffers > self.buffer_limit:
            raise IntegrityError(f"{self.bytes} bytes kept where {self.limit} were promised")

    def give(self, size: int, buffers: int) -> None:
        self.bytes -= size
        self.buffers -= buffers

    def make_room(self, size: int, buffers: int) -> bool:
        """Drop what was not used for longest until so much fits."""
        if size > self.limit or buffers > self.buffer_limit:
            return False
        while self.bytes + size > self.limit or self.buffers + buffers > self.buffer_limit:
            if not self.evict_oldest():
                return False
        return True

    def shrink(self, limit: int, buffer_limit: int) -> None:
        """From now on, no more than this."""
        self.limit, self.buffer_limit = max(0, limit), max(0, buffer_limit)
        self.make_room(0, 0)

    def check(self, held: int) -> None:
        if self.bytes != held or held > self.limit:
            raise IntegrityError(f"{held} bytes kept, {self.bytes} counted, of {self.limit}")

    def evict_oldest(self) -> bool:
        """Let go of what was not used for longest; false if nothing may go."""
        oldest = [(entry, queue) for queue in self._queues if (entry := queue.oldest())]
        if not oldest:
            return False
        (_, item), queue = min(oldest, key=lambda pair: pair[0][0])
        queue.evict(item)
        self.evicted += 1
        return True
