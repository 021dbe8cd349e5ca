"""The prefix tree's edges and snapshots on disk: written when they are kept, read when needed.

A file outlives the memory of what it holds, so a node may be in the tree whose edge is not in
memory. To restore it, its files and those of all before it are read first (`DiskFetch`), while the
request waits in the queue and others run. These may split, evict, forget and make nodes, so what
was read is put where its tokens are then, and not where they were.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from bushel.cache.prefix.disk import Disk, Entry, HostArray, PendingRead
from bushel.cache.prefix.kv_segment import KVSegment, SegmentLayout
from bushel.cache.prefix.node import Edge, Node, Place
from bushel.cache.prefix.paged_segment import PagedForm, PagedSegment
from bushel.cache.prefix.radix_tree import RadixTree
from bushel.cache.prefix.snapshot import PrefixSnapshot
from bushel.cache.prefix.token_key import Key, digest_of
from bushel.core import IntegrityError

log = logging.getLogger(__name__)


def to_host(array: mx.array) -> HostArray:
    """Also of nothing: keys that are latents have values of no width."""
    data = np.array(mx.contiguous(array).view(mx.uint8)).data.cast("B") if array.size else b""
    return HostArray(str(array.dtype).rpartition(".")[2], tuple(array.shape), data)


def to_device(array: HostArray) -> mx.array:
    dtype = mx.bool_ if array.dtype == "bool" else getattr(mx, array.dtype)
    if not array.data:
        return mx.zeros(array.shape, dtype)
    return mx.array(np.frombuffer(array.data, np.uint8)).view(dtype).reshape(array.shape)


@dataclass(eq=False)
class DiskFetch:
    """What is being read for one request, so that the tokens of `key` can be restored."""

    root: str
    key: Key
    edges: dict[str, PendingRead]  # by the file's name
    snapshot: PendingRead | None  # after the last token
    loaded: set[Node] = field(default_factory=set)

    @property
    def done(self) -> bool:
        snapshot = self.snapshot is None or self.snapshot.done
        return snapshot and all(reading.done for reading in self.edges.values())


class DiskTier:
    """sample: a snapshot of the model's, by whose form those read from files are judged.

    pages: how edges are put into pages, if the tree holds such.
    """

    def __init__(
        self,
        disk: Disk,
        tree: RadixTree,
        layout: SegmentLayout,
        sample: PrefixSnapshot,
        pages: PagedForm | None = None,
    ):
        self.disk = disk
        self._pages = pages
        self._tree = tree
        self._layout = layout
        self._sample = sample
        tree.on_forget = disk.remove
        lasts: dict[str, Node] = {}  # the last node that a file has tokens of
        for entry in disk.found:
            self._adopt(entry, lasts)
        disk.found.clear()

    # -- at the start ------------------------------------------------------------------------

    def _adopt(self, entry: Entry, lasts: dict[str, Node]) -> None:
        root, sorts = json.loads(entry.note)
        before = _key_to(lasts[entry.parent]) if entry.parent in lasts else np.empty(0, np.int64)
        if len(before) < entry.start:
            return  # what it stands on is under another salt
        key = np.concatenate([before[: entry.start], entry.key])
        if entry.kind == "edge":
            if self._tree.adopt(root, key, entry.name, entry.start):
                node = self._tree.node_at(root, key)
                assert node is not None
                lasts[entry.name] = node
        elif (node := self._tree.node_at(root, key)) is not None:
            node.snapshot_file, node.sorts = entry.name, frozenset(sorts)

    # -- keeping -----------------------------------------------------------------------------

    def write(self, root: str, node: Node) -> None:
        """A node, and whatever before it is not on disk yet.

        First everything is waited for: had the device failed at any of it, this would raise.
        """
        mx.synchronize()
        for ancestor in node.line():
            if ancestor.file is None and not self._write_edge(root, ancestor):
                return
        if (
            node.snapshot_file is None
            and isinstance(node.snapshot, PrefixSnapshot)
            and node.file is not None
        ):
            note = json.dumps([root, sorted(node.sorts)])
            arrays = {name: to_host(array) for name, array in node.snapshot.named().items()}
            node.snapshot_file = self.disk.write(
                "snapshot", node.file.name, node.end, np.empty(0, np.int64), note, arrays
            )

    def _write_edge(self, root: str, node: Node) -> bool:
        above = node.parent.file if node.parent is not None else None
        if not isinstance(node.edge, KVSegment | PagedSegment) or (node.start and above is None):
            return False
        arrays = {str(at): to_host(array) for at, array in enumerate(node.edge.segment().arrays)}
        note = json.dumps([root, []])
        parent = above.name if above is not None else None
        name = self.disk.write("edge", parent, node.start, node.key, note, arrays)
        if name is not None:
            node.file = Place(name)
        return name is not None

    # -- reading -----------------------------------------------------------------------------

    def fetch(self, root: str, key: Key, nodes: Sequence[Node]) -> DiskFetch | None:
        """Begin to read what of these is not in memory; None if all is. They have all of `key`."""
        last = nodes[-1]
        absent = last.snapshot is None and last.snapshot_file is not None
        snapshot = self.disk.read(last.snapshot_file) if absent and last.snapshot_file else None
        edges = {
            node.file.name: self.disk.read(node.file.name)
            for node in nodes
            if node.edge is None and node.file is not None
        }
        return DiskFetch(root, key, edges, snapshot) if edges or snapshot is not None else None

    def take(self, fetch: DiskFetch) -> None:
        """Put what was read into the tree, as far as it is sound and there is room."""
        nodes = self._tree.walk(fetch.root, fetch.key).nodes
        for node in nodes:
            if node.edge is not None:
                continue
            reading = fetch.edges.get(node.file.name) if node.file is not None else None
            segment = self._segment(node, reading) if reading is not None else None
            if segment is None or not self._tree.load(node, self._edge(node, segment)):
                break
            fetch.loaded.add(node)
        if nodes and fetch.snapshot is not None:
            self._take_snapshot(nodes[-1], fetch, fetch.snapshot)
        self._tree.unload_idle(nodes)

    def _take_snapshot(self, last: Node, fetch: DiskFetch, reading: PendingRead) -> None:
        wanted = last.snapshot_file == reading.name and last.end == len(fetch.key)
        if wanted and last.edge is not None and last.snapshot is None:
            rest = self._rest(last, reading)
            if rest is not None and self._tree.rest(last, rest, ""):
                fetch.loaded.add(last)

    def _segment(self, node: Node, reading: PendingRead) -> KVSegment | None:
        if reading.arrays is None or node.file is None:
            return None
        arrays = tuple(to_device(reading.arrays[name]) for name in sorted(reading.arrays, key=int))
        whole = KVSegment(self._layout, arrays, reading.start, reading.key)
        if not self._layout.fits(whole):
            self._reject(reading.name, "its arrays are not those of this model")
            return None
        if whole.covers(node.start, node.key):
            return whole
        part = whole.between(node.file.skip, node.file.skip + len(node.key))
        if not part.covers(node.start, node.key):
            self._reject(reading.name, "its tokens are not those of its place")
            return None
        return part

    def _edge(self, node: Node, segment: KVSegment) -> Edge:
        """As the tree holds it."""
        if self._pages is None:
            return segment
        before = node.parent.edge if node.parent is not None else None
        return self._pages.adopt(segment, before if isinstance(before, PagedSegment) else None)

    def _rest(self, node: Node, reading: PendingRead) -> PrefixSnapshot | None:
        if reading.arrays is None:
            return None
        arrays = {name: to_device(array) for name, array in reading.arrays.items()}
        rest = self._sample.like(arrays, digest_of(_key_to(node)), node.end)
        if rest is None or reading.start != node.end:
            self._reject(reading.name, "its arrays are not those of this model")
            return None
        return rest

    def _reject(self, name: str, why: str) -> None:
        log.warning("Disk cache: removed %s: %s.", name, why)
        self.disk.remove(name)

    def settle(self) -> None:
        """Take note of files that are gone; once in a while."""
        if gone := self.disk.take_gone():
            self._tree.forget(gone)

    def clear(self) -> None:
        self.disk.clear()
        self.disk.take_gone()

    def close(self) -> None:
        self.disk.close()

    def check_integrity(self) -> None:
        """Every file that the tree names has the tokens of its place, if it is still there."""
        self.disk.check_integrity()
        for node in self._tree.nodes():
            if node.file is not None and (tokens := self.disk.tokens(node.file.name)) is not None:
                first, end = tokens
                inside = first + node.file.skip == node.start and node.end <= end
                _require(inside, f"[{node.start}, {node.end}) is not in its file")
            if node.snapshot_file is not None:
                there = self.disk.tokens(node.snapshot_file)
                at_end = there is None or there == (node.end, node.end)
                _require(at_end, f"a snapshot of another place at {node.end}")


def _require(ok: bool, what: str) -> None:
    if not ok:
        raise IntegrityError(f"disk tier: {what}")


def _key_to(node: Node) -> Key:
    """All tokens up to a node's end."""
    return np.concatenate([ancestor.key for ancestor in node.line()])
