"""One limit over several sorts of things (B45)."""

import heapq
import random
import weakref
from types import SimpleNamespace
from typing import Generic, TypeVar

import pytest

from bushel.cache.prefix import memory_budget as module
from bushel.cache.prefix.memory_budget import MemoryBudget
from bushel.core import IntegrityError

T = TypeVar("T")


class Sort(Generic[T]):
    """Things of one byte and one buffer each, and the order in which they went."""

    def __init__(self, budget: MemoryBudget):
        self.budget = budget
        self.stays: set[T] = set()
        self.gone: list[T] = []
        self.queue = budget.queue(self._evict, lambda item: item not in self.stays)

    def put(self, item: T) -> bool:
        if not self.budget.make_room(1, 1):
            return False
        self.budget.take(1, 1)
        self.queue.touch(item, self.budget.tick())
        return True

    def use(self, item: T) -> None:
        self.queue.touch(item, self.budget.tick())

    def _evict(self, item: T) -> None:
        self.queue.remove(item)
        self.budget.give(1, 1)
        self.gone.append(item)


def test_the_oldest_of_all_sorts_goes_first() -> None:
    budget = MemoryBudget(4, 100)
    one, other = Sort(budget), Sort(budget)
    for item in (1, 2):
        one.put(item)
        other.put(item)
    one.use(1)
    assert other.put(3)  # 2 of `one` was used before 1 of `other`
    assert (one.gone, other.gone) == ([], [1])
    assert other.put(4)
    assert (one.gone, other.gone) == ([2], [1])


@pytest.mark.parametrize(("limit", "buffers"), [(3, 100), (100, 3)])
def test_neither_limit_is_passed(limit: int, buffers: int) -> None:
    budget = MemoryBudget(limit, buffers)
    sort = Sort(budget)
    for item in range(10):
        assert sort.put(item)
        assert budget.bytes == budget.buffers == min(item + 1, 3)
    assert sort.gone == list(range(7))
    budget.shrink(1, 1)
    assert (budget.bytes, sort.gone) == (1, list(range(9)))


def test_what_can_never_fit_drops_nothing() -> None:
    budget = MemoryBudget(3, 3)
    sort = Sort(budget)
    sort.put(0)
    assert not budget.make_room(4, 1)
    assert not budget.make_room(1, 4)
    assert sort.gone == []


def test_what_may_not_go_is_passed_over_and_goes_later() -> None:
    budget = MemoryBudget(3, 3)
    sort = Sort(budget)
    for item in range(3):
        sort.put(item)
    sort.stays = {0}
    assert sort.put(3)
    sort.stays = set()
    sort.queue.offer(0)
    assert sort.put(4)
    assert sort.gone == [1, 0]
    sort.stays = {2, 3, 4}
    assert not sort.put(5)


def test_taking_without_room_is_an_error() -> None:
    budget = MemoryBudget(1, 1)
    with pytest.raises(IntegrityError):
        budget.take(2, 1)
    with pytest.raises(IntegrityError):
        MemoryBudget(1, 1).check(1)


def test_a_thing_dropped_and_made_again_is_as_young_as_its_second_making() -> None:
    budget = MemoryBudget(2, 2)
    sort = Sort(budget)
    for item in (1, 2, 3, 1):
        sort.put(item)
    assert sort.gone == [1, 2]
    sort.put(4)
    assert sort.gone == [1, 2, 3]


def test_what_is_dropped_is_freed() -> None:
    """However few are put after it. B45."""

    class Thing:
        pass

    budget = MemoryBudget(3, 3)
    sort: Sort[Thing] = Sort(budget)
    things = [Thing() for _ in range(10)]
    for thing in things:
        sort.put(thing)
    for thing in things[7:]:
        sort.use(thing)
    sort.gone.clear()
    kept = [weakref.ref(thing) for thing in things]
    del things, thing
    assert [ref() is not None for ref in kept] == [False] * 7 + [True] * 3


def test_uses_and_evictions_take_a_few_heap_operations_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is used and what is dropped costs the same among many. B45."""
    moved = 0

    def counted(name: str):
        def act(heap: list, *rest: object) -> object:
            nonlocal moved
            moved += len(heap) if name == "heapify" else 1
            return getattr(heapq, name)(heap, *rest)

        return act

    names = ("heappush", "heappop", "heapify")
    monkeypatch.setattr(module, "heapq", SimpleNamespace(**{it: counted(it) for it in names}))

    def per_act(count: int, acts: int = 20_000) -> float:
        nonlocal moved
        rng, budget = random.Random(count), MemoryBudget(count, count)
        sort = Sort(budget)
        for item in range(count):
            sort.put(item)
        moved, newest = 0, count - 1
        for item in range(acts):
            if rng.random() < 0.5:
                newest = count + item
                sort.put(newest)
            else:
                sort.use(newest)
            assert len(sort.queue._heap) <= 5 * (count + 17)
        return moved / acts

    assert per_act(10) < 4
    assert per_act(1_000, 3_000) < 4
