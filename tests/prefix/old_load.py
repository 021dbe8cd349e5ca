"""What is read from disk put where it was when the read began, as it once was: must be noticed.

A node may have been split and its upper half evicted meanwhile. Then its lower half came to lie
over a hole, and was taken for the beginning of the prompt.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from bushel.cache.prefix import prefixes
from bushel.cache.prefix.node import Edge, Node
from bushel.cache.prefix.prefixes import Prefixes
from bushel.cache.prefix.slab import Layout, Slab
from bushel.cache.prefix.tier import Fetch, Tier
from bushel.cache.prefix.tree import Tree, Walk
from bushel.core import IntegrityError

_fetch = Tier.fetch


def _load(tree: Tree, node: Node, edge: Edge) -> bool:
    if not node.somewhere:
        return False
    with tree._standing_on(node.line()) as stays:
        stays.add(node)
        return tree._load(node, lambda *_: edge)


def _remember(tier: Tier, root: str, key: Any, nodes: Sequence[Node]) -> Fetch | None:
    fetch: Any = _fetch(tier, root, key, nodes)
    if fetch is not None:
        fetch.nodes = tuple(nodes)
    return fetch


def _take(tier: Tier, fetch: Any) -> None:
    if not tier._tree.has(fetch.nodes[-1]):
        return
    for node in fetch.nodes:
        if node.edge is not None:
            continue
        reading = fetch.edges.get(node.file.name) if node.file is not None else None
        slab = tier._slab(node, reading) if reading is not None else None
        if slab is None or not tier._tree.load(node, slab):
            break
        fetch.loaded.add(node)
    if fetch.snapshot is not None:
        tier._take_snapshot(fetch.nodes[-1], fetch, fetch.snapshot)
    tier._tree.unload_idle(fetch.nodes)


def _position(self: Prefixes, walk: Walk, most: int, *, files: bool = False) -> int:
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


def _slabs(nodes: Sequence[Node]) -> list[Slab]:
    return [node.edge for node in nodes if isinstance(node.edge, Slab)]


def _enough(layout: Layout, slabs: Sequence[Slab], key: Any) -> None:
    if sum(len(slab.key) for slab in slabs) < len(key):
        raise IntegrityError("tokens are not there")


@contextmanager
def put_back() -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, old in (
            (Tree, "load", _load),
            (Tier, "fetch", _remember),
            (Tier, "take", _take),
            (Prefixes, "_position", _position),
            (prefixes, "_slabs", _slabs),
            (Layout, "_check_joined", _enough),
        ):
            stack.enter_context(patch.object(owner, name, old))
        yield
