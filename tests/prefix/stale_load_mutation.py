"""What is read from disk put where it was when the read began, as it once was: must be noticed.

A node may have been split and its upper half evicted meanwhile. Then its lower half came to lie
over a hole, and was taken for the beginning of the prompt.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from bushel.cache.prefix import prefix_cache
from bushel.cache.prefix.disk_tier import DiskFetch, DiskTier
from bushel.cache.prefix.kv_segment import KVSegment, SegmentLayout
from bushel.cache.prefix.node import Edge, Node
from bushel.cache.prefix.prefix_cache import PrefixCache
from bushel.cache.prefix.radix_tree import RadixTree, TreeWalk
from bushel.core import IntegrityError

_fetch = DiskTier.fetch


def _load(tree: RadixTree, node: Node, edge: Edge) -> bool:
    if not node.somewhere:
        return False
    with tree._standing_on(node.line()) as stays:
        stays.add(node)
        return tree._load(node, lambda *_: edge)


def _remember(tier: DiskTier, root: str, key: Any, nodes: Sequence[Node]) -> DiskFetch | None:
    fetch: Any = _fetch(tier, root, key, nodes)
    if fetch is not None:
        fetch.nodes = tuple(nodes)
    return fetch


def _take(tier: DiskTier, fetch: Any) -> None:
    if not tier._tree.has(fetch.nodes[-1]):
        return
    for node in fetch.nodes:
        if node.edge is not None:
            continue
        reading = fetch.edges.get(node.file.name) if node.file is not None else None
        segment = tier._segment(node, reading) if reading is not None else None
        if segment is None or not tier._tree.load(node, segment):
            break
        fetch.loaded.add(node)
    if fetch.snapshot is not None:
        tier._take_snapshot(fetch.nodes[-1], fetch, fetch.snapshot)
    tier._tree.unload_idle(fetch.nodes)


def _position(self: PrefixCache, walk: TreeWalk, most: int, *, files: bool = False) -> int:
    last = min(walk.matched, most)
    if not files:
        loaded = (node.end for node in walk.nodes if node.edge is not None)
        last = min(last, max(loaded, default=0))
    if not self.needs_snapshots:
        return last
    resting = (
        node.end
        for node in reversed(walk.nodes)
        if node.end <= last and (node.snapshot is not None or (files and node.resting))
    )
    return next(resting, 0)


def _edges(nodes: Sequence[Node], sort: type[Any]) -> list[Any]:
    return [node.edge for node in nodes if isinstance(node.edge, sort)]


def _enough(layout: SegmentLayout, segments: Sequence[KVSegment], key: Any) -> None:
    if sum(len(segment.key) for segment in segments) < len(key):
        raise IntegrityError("tokens are not there")


@contextmanager
def put_back() -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, old in (
            (RadixTree, "load", _load),
            (DiskTier, "fetch", _remember),
            (DiskTier, "take", _take),
            (PrefixCache, "_position", _position),
            (prefix_cache, "_edges", _edges),
            (SegmentLayout, "_check_joined", _enough),
        ):
            stack.enter_context(patch.object(owner, name, old))
        yield
