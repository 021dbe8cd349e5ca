"""A radix tree over token keys: what was computed for every token, stored once.

    root ── "system + tools" ──●── "turn 1" ──●── "turn 2" ──●
                               │              └── "turn 2, asked otherwise" ──●
                               └── "another conversation" ──●

  edge       state that every token leaves behind (keys and values), on the line to a node
  snapshot   state after all tokens up to a node (windows, recurrent layers), at some nodes
  file       where the disk tier has an edge or a snapshot; it may be there, in memory, or both
  sort       why a snapshot was taken: a node keeps it for as long as any of its sorts holds

An edge is in memory only if all before it are. Edges go from the leaves on, and what others
stand on stays. Owned by one thread; knows nothing of MLX.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bushel.cache.prefix.memory_budget import MemoryBudget
from bushel.cache.prefix.node import Edge, HeldState, Node, Place
from bushel.cache.prefix.token_key import Key, agree
from bushel.core import IntegrityError

# Of each of these one conversation needs the last one alone.
_LATEST = frozenset({"user", "history", "prompt", "reply"})


@dataclass(frozen=True)
class TreeWalk:
    """How far a key can be followed; of the last node's edge perhaps only a part."""

    nodes: tuple[Node, ...]
    matched: int


class RadixTree:
    def __init__(self, budget: MemoryBudget, needs_snapshots: bool):
        self._budget = budget
        self._needs_snapshots = needs_snapshots  # an edge alone restores nothing
        self._roots: dict[str, Node] = {}
        self._names: dict[Node, str] = {}  # of the roots
        self._pinned: set[Node] = set()  # what the present change stands on
        self._edges = budget.queue(
            self.unload, lambda node: node.loaded == 0 and node not in self._pinned
        )
        self._snapshots = budget.queue(self._unload_snapshot)
        self.tokens = self.edge_bytes = self.snapshot_bytes = 0  # in memory
        self.on_forget: Callable[[str], None] = lambda _: None  # hears of files nobody needs

    # -- looking -----------------------------------------------------------------------------

    def walk(self, root: str, key: Key) -> TreeWalk:
        node, at, nodes = self._roots.get(root), 0, list[Node]()
        while node is not None and at < len(key):
            node = node.children.get(int(key[at]))
            if node is None:
                break
            common = agree(node.key, key[at : at + len(node.key)])
            nodes.append(node)
            at += common
            if common < len(node.key):
                break
        return TreeWalk(tuple(nodes), at)

    def has(self, node: Node) -> bool:
        """Whether it is still in the tree."""
        while node.parent is not None:
            if node.parent.children.get(int(node.key[0])) is not node:
                return False
            node = node.parent
        return node in self._names

    def nodes(self) -> Iterator[Node]:
        for root in self._roots.values():
            yield from (node for node in root.below() if node is not root)

    # -- keeping -----------------------------------------------------------------------------

    def insert(
        self,
        root: str,
        key: Key,
        make: Callable[[int, int], Edge],
        *,
        node_there: bool = True,
        generated: bool = False,
    ) -> Node | None:
        """Have all of `key` in memory; None if it cannot be, for want of room.

        make: the edge of tokens [start, end). node_there: a node has to stand at the key's end.
        """
        walk = self.walk(root, key)
        with self._standing_on((self._root(root), *walk.nodes)) as stays:
            node = self._insert(walk, root, key, make, node_there, generated)
            if node is not None:
                stays.add(node)
        return node

    def _insert(
        self,
        walk: TreeWalk,
        root: str,
        key: Key,
        make: Callable[[int, int], Edge],
        node_there: bool,
        generated: bool,
    ) -> Node | None:
        if not all(self._load(node, make) for node in walk.nodes if node.end <= walk.matched):
            return None
        last = walk.nodes[-1] if walk.nodes else None
        if last is not None and walk.matched < last.end:
            if walk.matched == len(key) and not node_there and last.edge is not None:
                self.touch(last)
                return last
            last = self._split(last, walk.matched - last.start)
            if last is None or not self._load(last, make):
                return None
        if walk.matched < len(key):
            last = self._grow(last or self._root(root), key[walk.matched :], make)
        if last is not None:
            self.touch(last)
            for node in last.line():
                node.generated &= generated
        return last

    @contextlib.contextmanager
    def _standing_on(self, nodes: Iterable[Node]) -> Iterator[set[Node]]:
        """No edge of these goes meanwhile, though snapshots may; then what is idle, but `stays`."""
        stays: set[Node] = set()
        self._pinned.update(nodes)
        try:
            yield stays
        finally:
            stood, self._pinned = self._pinned, stays
            for node in stood:
                self._unload_idle(node)
                self._drop_empty_root(node)
            self._pinned = set()
            for node in stood:
                self._edges.offer(node)

    def _make_room(self, size: int, buffers: int) -> bool:
        """Lets nothing go in vain: all but what is pinned could."""
        budget, pinned = self._budget, [node.edge for node in self._pinned if node.edge is not None]
        if sum(edge.nbytes for edge in pinned) + size > budget.limit:
            return False
        if sum(edge.buffers for edge in pinned) + buffers > budget.buffer_limit:
            return False
        return budget.make_room(size, buffers)

    def _root(self, name: str) -> Node:
        if name not in self._roots:
            root = self._roots[name] = Node(None, np.empty(0, np.int64), 0, {})
            self._names[root] = name
        return self._roots[name]

    def _grow(self, parent: Node, key: Key, make: Callable[[int, int], Edge]) -> Node | None:
        node = Node(parent, key.copy(), parent.end, {}, generated=True)
        if not self._load(node, make):
            return None
        parent.children[int(key[0])] = node
        return node

    def _load(self, node: Node, make: Callable[[int, int], Edge]) -> bool:
        """Have a node's edge in memory, on top of all before it."""
        if node.edge is not None:
            return True
        edge = make(node.start, node.end)
        _require(edge.covers(node.start, node.key), "an edge of other tokens")
        if not self._make_room(edge.nbytes, edge.buffers):
            return False
        assert node.parent is not None
        self._budget.take(edge.nbytes, edge.buffers)
        node.edge = edge
        self.tokens += len(node.key)
        self.edge_bytes += edge.nbytes
        node.parent.loaded += 1
        self._pinned.add(node)
        self._edges.touch(node, self._budget.tick())
        return True

    def load(self, node: Node, edge: Edge) -> bool:
        """Have what was read from a file in memory; false if there is no room.

        Or if there is no place: it was forgotten while it was read, or something before it is
        not in memory (any more).
        """
        line = node.line()
        if not self.has(node) or any(ancestor.edge is None for ancestor in line[:-1]):
            return False
        with self._standing_on(line) as stays:
            stays.add(node)
            return self._load(node, lambda *_: edge)

    def unload_idle(self, nodes: Iterable[Node]) -> None:
        """Edges that are of no use without a snapshot that did not come."""
        for node in nodes:
            self._unload_idle(node)

    def _split(self, node: Node, at: int) -> Node | None:
        """A new node in the middle of an edge; None if there is no room to cut it."""
        assert node.parent is not None
        upper = Node(node.parent, node.key[:at].copy(), node.start, {}, generated=node.generated)
        if node.edge is not None:
            if not self._make_room(*node.edge.split_cost):
                return None
            first, second = node.edge.split(at)
            self._budget.give(node.edge.nbytes, node.edge.buffers)
            self.edge_bytes += first.nbytes + second.nbytes - node.edge.nbytes
            for half in (first, second):
                self._budget.take(half.nbytes, half.buffers)
            upper.edge, node.edge, upper.loaded = first, second, 1
            self._edges.touch(upper, self._budget.tick())
        if node.file is not None:
            upper.file = node.file
            node.file = Place(node.file.name, node.file.skip + at)
        node.parent.children[int(upper.key[0])] = upper
        node.key, node.start, node.parent = node.key[at:].copy(), node.start + at, upper
        upper.children[int(node.key[0])] = node
        self._pinned.add(upper)
        return upper

    def rest(self, node: Node, snapshot: HeldState, sort: str) -> bool:
        """Keep a snapshot at a node; a later one may make earlier ones of its sort needless."""
        if node.snapshot is None:
            # Someone came back to a place that others went on from, as they may again.
            again = bool(sort and node.children) and not node.resting
            with self._standing_on(node.line()):
                if not self._make_room(snapshot.nbytes, snapshot.buffers):
                    return False
                self._budget.take(snapshot.nbytes, snapshot.buffers)
                node.snapshot = snapshot
                self.snapshot_bytes += snapshot.nbytes
            node.sorts |= {"fork"} if again else set()
        self._snapshots.touch(node, self._budget.tick())
        self.mark(node, sort)
        return True

    def mark(self, node: Node, sort: str) -> None:
        """A node serves as this now."""
        node.sorts |= {sort} - {""}
        if sort not in _LATEST:
            return
        for earlier in node.line()[:-1]:
            if sort in earlier.sorts:
                earlier.sorts -= {sort}
                if not earlier.sorts and len(earlier.children) < 2:
                    self.drop_snapshot(earlier)
        if sort == "prompt":
            self._drop_dead_replies(node.line())

    def _drop_dead_replies(self, line: list[Node]) -> None:
        """The conversation went on without them, or with other tokens for the same text."""
        for earlier, following in pairwise(line):
            for child in list(earlier.children.values()):
                ends = child.generated and not child.children and child.sorts <= {"reply"}
                if child is not following and ends:
                    self.drop_snapshot(child)
                    if child.edge is not None:
                        self.unload(child)

    def touch(self, node: Node) -> None:
        """All up to here was used."""
        tick = self._budget.tick()
        for ancestor in node.line():
            if ancestor.edge is not None:
                self._edges.touch(ancestor, tick)
        if node.snapshot is not None:
            self._snapshots.touch(node, tick)

    # -- letting go --------------------------------------------------------------------------

    def unload(self, node: Node) -> None:
        """Take an edge that nothing in memory stands on out of memory, with its snapshot.

        So go edges before it that are then of no use.
        """
        assert node.parent is not None
        parent = node.parent
        self._unload(node)
        self._unload_idle(parent)

    def _unload(self, node: Node) -> None:
        assert node.parent is not None
        self._empty(node)
        node.parent.loaded -= 1
        self._edges.offer(node.parent)
        if node.file is None:
            self._forget(node)

    def _empty(self, node: Node) -> None:
        """Out of memory, whatever stands on it."""
        if node.snapshot is not None:
            self._release_snapshot(node)
        if node.edge is not None:
            self._budget.give(node.edge.nbytes, node.edge.buffers)
            self.tokens -= len(node.key)
            self.edge_bytes -= node.edge.nbytes
            self._edges.remove(node)
            node.edge, node.loaded = None, 0

    def _release_snapshot(self, node: Node) -> None:
        assert node.snapshot is not None
        self._budget.give(node.snapshot.nbytes, node.snapshot.buffers)
        self.snapshot_bytes -= node.snapshot.nbytes
        self._snapshots.remove(node)
        node.snapshot = None
        if node.snapshot_file is None:
            node.sorts = frozenset()

    def _unload_snapshot(self, node: Node) -> None:
        """Out of memory; edges that are of no use without it go as well."""
        self._release_snapshot(node)
        self._unload_idle(node)

    def drop_snapshot(self, node: Node) -> None:
        """Nobody will need it, in memory or on disk."""
        if node.snapshot is not None:
            self._release_snapshot(node)
        if node.snapshot_file is not None:
            self.on_forget(node.snapshot_file)
            node.snapshot_file = None
        node.sorts = frozenset()
        self._unload_idle(node)

    def _unload_idle(self, node: Node) -> None:
        while self._needs_snapshots and node.edge is not None and node.loaded == 0:
            parent = node.parent
            if node.snapshot is not None or parent is None or node in self._pinned:
                return
            self._unload(node)
            node = parent

    def forget(self, names: Iterable[str]) -> None:
        """These files are gone."""
        gone = set(names)
        for node in self.nodes():
            if node.snapshot_file in gone:
                node.snapshot_file = None
                if node.snapshot is None:
                    node.sorts = frozenset()
            if node.file is not None and node.file.name in gone:
                node.file = None
        for node in [candidate for candidate in self.nodes() if not candidate.somewhere]:
            self._forget(node)

    def _forget(self, node: Node) -> None:
        """Cut off a node and all below, none of which is in memory."""
        parent = node.parent
        assert parent is not None
        names = set[str]()
        for descendant in node.below():
            names.update(
                name
                for name in (descendant.file and descendant.file.name, descendant.snapshot_file)
                if name
            )
            descendant.file = descendant.snapshot_file = None
        if parent.file is not None:  # of a file that was split, the first part is still needed
            names.discard(parent.file.name)
        if parent.children.get(int(node.key[0])) is node:
            del parent.children[int(node.key[0])]
        self._drop_empty_root(parent)
        for name in sorted(names):
            self.on_forget(name)

    def _drop_empty_root(self, root: Node) -> None:
        if root in self._names and not root.children and root not in self._pinned:
            del self._roots[self._names.pop(root)]

    def discard(self, node: Node) -> None:
        """Let go of a node and all below it, on disk too."""
        parent = node.parent
        assert parent is not None
        parent.loaded -= node.edge is not None
        for descendant in node.below():
            self._empty(descendant)
        self._forget(node)
        self._edges.offer(parent)
        self._unload_idle(parent)

    def clear(self) -> None:
        """Forget all; files are not heard of."""
        for node in list(self.nodes()):
            self._empty(node)
            node.file = node.snapshot_file = None
        self._roots.clear()
        self._names.clear()

    # -- from files --------------------------------------------------------------------------

    def adopt(self, root: str, key: Key, name: str, start: int) -> bool:
        """A file has the tokens of this key from `start` on; false if what is before is missing."""
        walk = self.walk(root, key)
        if walk.matched < start:
            return False
        if walk.matched < len(key):
            if walk.nodes and walk.nodes[-1].file is None:
                return False
            parent = self._node_at(walk) if walk.nodes else self._root(root)
            if parent is None:
                return False
            piece = key[walk.matched :].copy()
            node = Node(parent, piece, parent.end, {}, file=Place(name, walk.matched - start))
            parent.children[int(piece[0])] = node
        return True

    def node_at(self, root: str, key: Key) -> Node | None:
        """The node at a key's end, made if need be; None if the tree does not reach so far."""
        walk = self.walk(root, key)
        return self._node_at(walk) if walk.matched == len(key) and walk.nodes else None

    def _node_at(self, walk: TreeWalk) -> Node | None:
        last = walk.nodes[-1]
        if walk.matched == last.end:
            return last
        with self._standing_on(walk.nodes):
            node = self._split(last, walk.matched - last.start)
        return node if node is not None and node.somewhere else None

    # -- looking after it --------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """Of what is in memory."""
        return {
            "nodes": len(self._edges),
            "tokens": self.tokens,
            "edge_bytes": self.edge_bytes,
            "snapshots": len(self._snapshots),
            "snapshot_bytes": self.snapshot_bytes,
        }

    def check_integrity(self) -> None:
        edges = [node.edge for node in self.nodes() if node.edge is not None]
        snapshots = [node.snapshot for node in self.nodes() if node.snapshot is not None]
        _require(sum(edge.nbytes for edge in edges) == self.edge_bytes, "edges of other sizes")
        _require(
            sum(snapshot.nbytes for snapshot in snapshots) == self.snapshot_bytes, "and snapshots"
        )
        for node in self.nodes():
            parent = node.parent
            assert parent is not None
            _require(parent.children[int(node.key[0])] is node, "a child under another's name")
            _require(node.start == parent.end and len(node.key) > 0, "an edge out of place")
            above = parent.parent is None or parent.edge is not None
            _require(node.edge is None or above, "an edge in memory over one that is not")
            same = node.edge is None or node.edge.covers(node.start, node.key)
            _require(same, "an edge of other tokens")
            _require(node.somewhere, "an edge that is nowhere")
            _require(node.snapshot is None or node.edge is not None, "a snapshot over no edge")
            in_memory = sum(child.edge is not None for child in node.children.values())
            _require(node.loaded == in_memory, f"{node.loaded} children, not {in_memory}")
            _require((node.edge is not None) == (node in self._edges), "an edge nobody ages")
            _require((node.snapshot is not None) == (node in self._snapshots), "so a snapshot")
            if self._needs_snapshots and node.edge is not None and node.loaded == 0:
                _require(node.snapshot is not None, "an edge that restores nothing")


def _require(ok: bool, what: str) -> None:
    if not ok:
        raise IntegrityError(f"prefix tree: {what}")
