"""A place in the prefix tree, and what may be kept on the line to it and at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bushel.cache.prefix.token_key import Key


class HeldState(Protocol):
    """Something in memory. Never written to again."""

    @property
    def nbytes(self) -> int: ...

    @property
    def buffers(self) -> int: ...


class Edge(HeldState, Protocol):
    def covers(self, start: int, key: Key) -> bool:
        """Whether it holds the state of exactly these tokens, with `start` others before them."""

    def split(self, at: int) -> tuple[Edge, Edge]:
        """As two, the first of `at` tokens."""

    @property
    def split_cost(self) -> tuple[int, int]:
        """Bytes and buffers that are needed for that, beside its own."""


class Place(NamedTuple):
    """Of an edge on disk: a file, and how many of the file's tokens come before it."""

    name: str
    skip: int = 0


@dataclass(eq=False, slots=True)
class Node:
    parent: Node | None
    key: Key
    start: int  # tokens before the edge
    children: dict[int, Node]
    edge: Edge | None = None
    file: Place | None = None
    snapshot: HeldState | None = None
    snapshot_file: str | None = None
    sorts: frozenset[str] = frozenset()
    generated: bool = False  # tokens of a reply, which nobody may ever send again
    loaded: int = 0  # children whose edges are in memory

    @property
    def end(self) -> int:
        return self.start + len(self.key)

    @property
    def somewhere(self) -> bool:
        """Whether its edge is in memory or on disk. A node without one is no longer in the tree."""
        return self.edge is not None or self.file is not None

    @property
    def resting(self) -> bool:
        """Whether all layers could be restored here, perhaps from files."""
        return self.snapshot is not None or self.snapshot_file is not None

    def line(self) -> list[Node]:
        """Nodes from below the root down to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def below(self) -> Iterator[Node]:
        """This one and all that stand on it."""
        ahead = [self]
        while ahead:
            node = ahead.pop()
            yield node
            ahead.extend(node.children.values())
