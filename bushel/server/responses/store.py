"""What was asked and answered, for requests that go on from there. In memory, and bounded.

Every entry holds the whole conversation up to its own output, so that none depends on another.
Items are kept encoded, since bytes can be counted, and shared between entries. Each entry is
counted in full: what is really held is at most that. Where room is short, the owner who holds most
loses what it asked for longest ago, so that nobody loses an equal share to others (B68). Belongs to
the event loop.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from bushel.server.errors import ApiError
from bushel.server.responses.items import Item

# Of an item: its tuple, its id and its places in indexes.
_OVERHEAD = 512
_WHILE = (
    "Responses are kept in memory for a while, unless the request says store: false, and lost "
    "when the server restarts."
)


@dataclass(frozen=True)
class Bounds:
    """An agent's turn is some 100 kB without images, and counts with all turns before it."""

    bytes: int = 256 << 20
    entries: int = 4096
    seconds: float = 24 * 3600.0  # without being asked for


@dataclass(frozen=True)
class EncodedItem:
    """An item, as bytes that can be counted."""

    id: str
    json: bytes

    @classmethod
    def of(cls, item: Item) -> EncodedItem:
        return cls(item["id"], msgspec.json.encode(item))

    def item(self) -> Item:
        return dict(msgspec.json.decode(self.json))


@dataclass(frozen=True)
class Kept:
    """owner: who may read it. salt: requests with another one do not go on from here. payload:
    the response as it was given. earlier: the conversation before this request; own: its input.
    """

    id: str
    owner: str
    salt: str
    payload: bytes
    earlier: tuple[EncodedItem, ...]
    own: tuple[EncodedItem, ...]
    output: tuple[EncodedItem, ...]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        items = sum(len(item.json) + len(item.id) + _OVERHEAD for item in self.conversation)
        object.__setattr__(self, "size", len(self.payload) + items)

    @property
    def conversation(self) -> tuple[EncodedItem, ...]:
        return (*self.earlier, *self.own, *self.output)

    @cached_property
    def named(self) -> dict[str, EncodedItem]:
        """Of what it added, the first item of each id."""
        return {item.id: item for item in reversed(self.added)}

    @property
    def added(self) -> tuple[EncodedItem, ...]:
        return (*self.own, *self.output)


def encoded(items: Iterable[Item]) -> tuple[EncodedItem, ...]:
    return tuple(map(EncodedItem.of, items))


_Key = tuple[str, str]  # an owner, and an id


@dataclass
class _OwnerEntries:
    """One owner's, the latest asked for last."""

    names: OrderedDict[str, None] = field(default_factory=OrderedDict)
    bytes: int = 0


class Store:
    def __init__(self, bounds: Bounds | None = None, clock: Callable[[], float] = time.monotonic):
        self._bounds = bounds or Bounds()
        self._clock = clock
        # With the time it was last asked for; the latest is last.
        self._kept: OrderedDict[_Key, tuple[Kept, float]] = OrderedDict()
        self._owners: dict[str, _OwnerEntries] = {}
        self._origins: dict[_Key, _Key] = {}  # of an item: the response it came with
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, kept: Kept) -> None:
        key = (kept.owner, kept.id)
        self._drop(key)
        self._kept[key] = (kept, self._clock())
        entries = self._owners.setdefault(kept.owner, _OwnerEntries())
        entries.names[kept.id] = None
        entries.bytes += kept.size
        self.bytes += kept.size
        for item in kept.added:
            self._origins[kept.owner, item.id] = key
        self._trim()

    def get(self, owner: str, name: str) -> Kept | None:
        self._trim()
        if (owner, name) not in self._kept:
            return None
        kept, _ = self._kept.pop((owner, name))
        self._kept[owner, name] = (kept, self._clock())
        self._owners[owner].names.move_to_end(name)
        return kept

    def owner(self, name: str) -> str | None:
        """Whose response that is; for an operator, who sees everyone's."""
        return next(
            (owner for owner, entries in self._owners.items() if name in entries.names), None
        )

    def item(self, owner: str, salt: str, name: str) -> Item | None:
        encoded_item = self.find(owner, salt, name)
        return None if encoded_item is None else encoded_item.item()

    def find(self, owner: str, salt: str, name: str) -> EncodedItem | None:
        origin = self._origins.get((owner, name))
        kept = self.get(*origin) if origin is not None else None
        return None if kept is None or kept.salt != salt else kept.named[name]

    def drop(self, owner: str, name: str) -> bool:
        """False if there is no such response."""
        self._trim()
        return self._drop((owner, name))

    def _drop(self, key: _Key) -> bool:
        if key not in self._kept:
            return False
        kept, _ = self._kept.pop(key)
        entries = self._owners[kept.owner]
        del entries.names[kept.id]
        entries.bytes -= kept.size
        if not entries.names:
            del self._owners[kept.owner]
        self.bytes -= kept.size
        for item in kept.added:
            if self._origins.get((kept.owner, item.id)) == key:
                del self._origins[kept.owner, item.id]
        return True

    def _trim(self) -> None:
        oldest = self._clock() - self._bounds.seconds
        while self._kept:
            key, (_, asked) = next(iter(self._kept.items()))
            if asked >= oldest:
                break
            self._drop(key)
        while self.bytes > self._bounds.bytes:
            self._drop_of(max(self._owners, key=lambda owner: self._owners[owner].bytes))
        while len(self._kept) > self._bounds.entries:
            self._drop_of(max(self._owners, key=lambda owner: len(self._owners[owner].names)))

    def _drop_of(self, owner: str) -> None:
        self._drop((owner, next(iter(self._owners[owner].names))))

    def check_integrity(self) -> None:
        assert self.bytes == sum(kept.size for kept, _ in self._kept.values())
        assert self.bytes <= self._bounds.bytes
        assert len(self._kept) <= self._bounds.entries
        assert set(self._origins.values()) <= self._kept.keys()
        owned = {(owner, name) for owner, entries in self._owners.items() for name in entries.names}
        assert owned == self._kept.keys()
        assert all(entries.names for entries in self._owners.values())
        assert self.bytes == sum(entries.bytes for entries in self._owners.values())


def no_previous(name: str) -> ApiError:
    return ApiError(
        400,
        f"The response {name[:100]!r} is not kept here. {_WHILE} Send the whole conversation as "
        "input.",
        code="previous_response_not_found",
        param="previous_response_id",
    )


def no_response(name: str) -> ApiError:
    return ApiError(
        404,
        f"The response {name[:100]!r} is not kept here. {_WHILE}",
        code="response_not_found",
        param="response_id",
    )
