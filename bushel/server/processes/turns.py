"""Who is next: owners take turns, an owner's groups do, and within a group the first is first."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Things that wait. An owner is a key's, a group is one request's."""

    def __init__(self) -> None:
        # Whose turn is next first; nobody is in it without something that waits.
        self._owners: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, owner: str, group: str, thing: T) -> None:
        groups = self._owners.setdefault(owner, OrderedDict())
        groups.setdefault(group, deque()).append(thing)
        self._count += 1

    def take(self) -> T:
        """Of those that wait, of which there must be one."""
        owner, groups = self._owners.popitem(last=False)
        group, things = groups.popitem(last=False)
        thing = things.popleft()
        if things:
            groups[group] = things
        if groups:
            self._owners[owner] = groups
        self._count -= 1
        return thing
