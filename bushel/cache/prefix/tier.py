"""The prefix tree's edges and snapshots on disk: written when they are kept, read when needed.

A file outlives the memory of what it holds, so a node may be in the tree whose edge is not in
memory. To restore it, its files and those of all before it are read first (`Fetch`), while the
request waits in the queue and others run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from bushel.cache.prefix.disk import Disk, Entry, HostArray, Reading
from bushel.cache.prefix.node import Node, Place
from bushel.cache.prefix.rest import Rest
from bushel.cache.prefix.slab import Layout, Slab
from bushel.cache.prefix.tree import Tree

log = logging.getLogger(__name__)


def to_host(array: mx.array) -> HostArray:
    data = np.array(mx.contiguous(array).view(mx.uint8))
    return HostArray(str(array.dtype).rpartition(".")[2], tuple(array.shape), data.data.cast("B"))


def to_device(array: HostArray) -> mx.array:
    plain = mx.array(np.frombuffer(array.data, np.uint8))
    return plain.view(getattr(mx, array.dtype)).reshape(array.shape)


@dataclass(eq=False)
class Fetch:
    """What is being read for one request; `nodes` from the root on, then the last's snapshot."""

    nodes: tuple[Node, ...]
    edges: dict[Node, Reading]
    snapshot: Reading | None
    loaded: set[Node] = field(default_factory=set)

    @property
    def done(self) -> bool:
        snapshot = self.snapshot is None or self.snapshot.done
        return snapshot and all(reading.done for reading in self.edges.values())


class Tier:
    """sample: a snapshot of the model's, by whose form those read from files are judged."""

    def __init__(self, disk: Disk, tree: Tree, layout: Layout, sample: Rest):
        self.disk = disk
        self._tree = tree
        self._layout = layout
        self._sample = sample
        self._nodes: dict[str, Node] = {}  # the last node that a file has tokens of
        tree.on_forget = disk.remove
        for entry in disk.found:
            self._adopt(entry)
        disk.found.clear()

    # -- at the start ------------------------------------------------------------------------

    def _adopt(self, entry: Entry) -> None:
        root, sorts = json.loads(entry.note)
        before = self._nodes[entry.parent].line() if entry.parent in self._nodes else []
        key = np.concatenate([*(node.key for node in before), np.empty(0, np.int64)])
        key = np.concatenate([key[: entry.start], entry.key])
        if entry.kind == "edge":
            if self._tree.adopt(root, key, entry.name, entry.start):
                node = self._tree.node_at(root, key)
                assert node is not None
                self._nodes[entry.name] = node
        elif (node := self._tree.node_at(root, key)) is not None:
            node.snapshot_file, node.sorts = entry.name, frozenset(sorts)

    # -- keeping -----------------------------------------------------------------------------

    def write(self, root: str, node: Node) -> None:
        """A node, and whatever before it is not on disk yet."""
        for it in node.line():
            if it.file is None and not self._write_edge(root, it):
                return
        if node.snapshot_file is None and isinstance(node.snapshot, Rest) and node.file is not None:
            note = json.dumps([root, sorted(node.sorts)])
            arrays = {name: to_host(array) for name, array in node.snapshot.named().items()}
            node.snapshot_file = self.disk.write(
                "snapshot", node.file.name, node.end, np.empty(0, np.int64), note, arrays
            )

    def _write_edge(self, root: str, node: Node) -> bool:
        above = node.parent.file if node.parent is not None else None
        if not isinstance(node.edge, Slab) or (node.start and above is None):
            return False
        arrays = {str(at): to_host(array) for at, array in enumerate(node.edge.arrays)}
        note = json.dumps([root, []])
        parent = above.name if above is not None else None
        name = self.disk.write("edge", parent, node.start, node.key, note, arrays)
        if name is not None:
            node.file = Place(name)
            self._nodes[name] = node
        return name is not None

    # -- reading -----------------------------------------------------------------------------

    def fetch(self, nodes: Sequence[Node]) -> Fetch | None:
        """Begin to read what of these is not in memory; None if all is."""
        last = nodes[-1]
        absent = last.snapshot is None and last.snapshot_file is not None
        snapshot = self.disk.read(last.snapshot_file) if absent and last.snapshot_file else None
        edges = {
            node: self.disk.read(node.file.name)
            for node in nodes
            if node.edge is None and node.file is not None
        }
        return Fetch(tuple(nodes), edges, snapshot) if edges or snapshot is not None else None

    def take(self, fetch: Fetch) -> None:
        """Put what was read into the tree, as far as it is sound and there is room."""
        if not self._tree.has(fetch.nodes[-1]):  # it was let go meanwhile
            return
        for node in fetch.nodes:
            if node.edge is not None:
                continue
            slab = self._slab(node, fetch.edges.get(node))
            if slab is None or not self._tree.load(node, slab):
                break
            fetch.loaded.add(node)
        last = fetch.nodes[-1]
        if fetch.snapshot is not None and last.edge is not None and last.snapshot is None:
            rest = self._rest(last, fetch.snapshot)
            if rest is not None and self._tree.rest(last, rest, ""):
                fetch.loaded.add(last)
        self._tree.unload_idle(fetch.nodes)

    def _slab(self, node: Node, reading: Reading | None) -> Slab | None:
        if reading is None or reading.arrays is None or node.file is None:
            return None
        arrays = tuple(to_device(reading.arrays[name]) for name in sorted(reading.arrays, key=int))
        skip = node.file.skip
        length = arrays[0].shape[2] if arrays else skip + len(node.key)
        whole = Slab(self._layout, arrays, length)
        if not self._layout.fits(whole) or skip + len(node.key) > length:
            self._reject(node.file.name, "its arrays are not those of this model")
            return None
        same = not skip and length == len(node.key)
        return whole if same else whole.between(skip, skip + len(node.key))

    def _rest(self, node: Node, reading: Reading) -> Rest | None:
        if reading.arrays is None:
            return None
        found = {name: to_device(array) for name, array in reading.arrays.items()}
        rest = self._sample.like(found, node.end)
        if rest is None and node.snapshot_file is not None:
            self._reject(node.snapshot_file, "its arrays are not those of this model")
        return rest

    def _reject(self, name: str, why: str) -> None:
        log.warning("Disk cache: removed %s: %s.", name, why)
        self.disk.remove(name)

    def settle(self) -> None:
        """Take note of files that are gone; once in a while."""
        if gone := self.disk.take_gone():
            for name in gone:
                self._nodes.pop(name, None)
            self._tree.forget(gone)

    def clear(self) -> None:
        self.disk.clear()
        self.disk.take_gone()
        self._nodes.clear()

    def close(self) -> None:
        self.disk.close()
