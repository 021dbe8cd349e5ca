"""What a prefix tree may and must hold, by brute force over every prefix of every key.

A *place* is a root and the tuple of all tokens from the beginning up to there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from bushel.cache.prefix.memory_budget import MemoryBudget
from bushel.cache.prefix.node import Node
from bushel.cache.prefix.radix_tree import RadixTree

Tokens = tuple[int, ...]
Place = tuple[str, Tokens]

TOKEN = 10  # bytes
SNAPSHOT = 15
LATEST = {"user", "history", "prompt", "reply"}


def key(tokens: Iterable[int]) -> np.ndarray:
    return np.array(list(tokens), np.int64)


def common(one: Iterable[int], other: Iterable[int]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def prefixes(root: str, tokens: Tokens) -> list[Place]:
    return [(root, tokens[:end]) for end in range(1, len(tokens) + 1)]


@dataclass(frozen=True)
class Run:
    """An edge that knows its own tokens, and how full memory is when it is cut in two."""

    tokens: Tokens
    budget: MemoryBudget
    nbytes: int = 0
    buffers: int = 2

    @classmethod
    def of(cls, tokens: Iterable[int], budget: MemoryBudget) -> Run:
        held = tuple(tokens)
        return cls(held, budget, TOKEN * len(held))

    def covers(self, _: int, tokens: np.ndarray) -> bool:
        return self.tokens == tuple(tokens.tolist())

    @property
    def split_cost(self) -> tuple[int, int]:
        return self.nbytes, 2 * self.buffers

    def split(self, at: int) -> tuple[Run, Run]:
        assert 0 < at < len(self.tokens)
        assert self.budget.bytes + self.nbytes <= self.budget.limit
        assert self.budget.buffers + 2 * self.buffers <= self.budget.buffer_limit
        return Run.of(self.tokens[:at], self.budget), Run.of(self.tokens[at:], self.budget)


@dataclass(frozen=True)
class State:
    """A snapshot that knows after which tokens it was taken."""

    tokens: Tokens
    nbytes: int = SNAPSHOT
    buffers: int = 1


def root_nodes(tree: RadixTree) -> Iterator[tuple[str, Node]]:
    for root in list(tree._roots):
        for node in tree._roots[root].below():
            if node.parent is not None:
                yield root, node


def tokens_to(node: Node) -> Tokens:
    """All tokens up to a node's end, as its line says."""
    return tuple(int(token) for it in node.line() for token in it.key)


@dataclass
class Slow:
    """`sure`: nothing has been dropped for want of room since it was empty."""

    may: set[Place] = field(default_factory=set)  # ever computed
    rests: dict[Place, set[str]] = field(default_factory=dict)  # snapshots, and why
    used: dict[Place, int] = field(default_factory=dict)  # in memory; when it was last used
    now: int = 0
    sure: bool = True

    def use(self, root: str, tokens: Tokens) -> None:
        self.now += 1
        self.used.update(dict.fromkeys(prefixes(root, tokens), self.now))

    def branches(self, place: Place) -> int:
        root, tokens = place
        ways = {
            it[len(tokens)]
            for where, it in self.used
            if where == root and len(it) > len(tokens) and it[: len(tokens)] == tokens
        }
        return len(ways)

    def rest(self, place: Place, sort: str) -> None:
        root, tokens = place
        if place not in self.rests:
            self.rests[place] = {"fork"} if self.branches(place) else set()
        self.rests[place].add(sort)
        if sort not in LATEST:
            return
        for before in prefixes(root, tokens)[:-1]:
            if sort in self.rests.get(before, ()):
                self.rests[before].discard(sort)
                if not self.rests[before] and self.branches(before) < 2:
                    del self.rests[before]


def check(tree: RadixTree, budget: MemoryBudget, slow: Slow, needs_snapshots: bool) -> None:
    """Everything that has to hold between two calls."""
    tree.check_integrity()
    held = [it for node in tree.nodes() for it in (node.edge, node.snapshot) if it is not None]
    assert budget.bytes == sum(it.nbytes for it in held) <= budget.limit
    assert budget.buffers == sum(it.buffers for it in held) <= budget.buffer_limit
    for root, node in root_nodes(tree):
        tokens = tokens_to(node)
        if node.edge is not None:
            assert node.edge.tokens == tokens[node.start :]
            assert (root, tokens) in slow.may
        if node.snapshot is not None:
            assert node.snapshot.tokens == tokens
    if slow.sure:
        assert in_memory(tree) == set(slow.used)
    if slow.sure and needs_snapshots:
        resting = {
            (root, tokens_to(node)): set(node.sorts)
            for root, node in root_nodes(tree)
            if node.snapshot is not None
        }
        assert resting == slow.rests


def in_memory(tree: RadixTree) -> set[Place]:
    return {
        (root, tokens_to(node)[: node.start + count])
        for root, node in root_nodes(tree)
        if node.edge is not None
        for count in range(1, len(node.key) + 1)
    }


def reach(tree: RadixTree, root: str, tokens: Tokens) -> int:
    """How much of a key the tree has, in memory or on disk, by looking at every node."""
    found = (common(tokens, tokens_to(node)) for where, node in root_nodes(tree) if where == root)
    return max(found, default=0)
