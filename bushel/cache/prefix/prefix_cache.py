"""What was computed for earlier prompts, found again: the tree, its states, and a plan for each.

    plan     how much of a prompt can be restored, and why not more
    restore  a row's own state from what is kept: copied once, or its pages held as well
    keep     what a row has run since: likewise

The row goes on writing into its own state; nothing here is ever written to again. Owned by the
thread that owns MLX. No call raises because of what it holds: a state that cannot be kept is
not kept, and one that cannot be restored is dropped and computed again (B43). What the device
did not compute is another matter: nothing that is in memory is trusted then (`distrust`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any, Literal, TypeVar

import mlx.core as mx
import numpy as np

from bushel.cache.fixed import Fixed
from bushel.cache.layer_kind import Layer, LayerSnapshot
from bushel.cache.opaque import CopiedWhole
from bushel.cache.paged.page_pool import PagePool
from bushel.cache.paged.paged_kv import table_of
from bushel.cache.prefix.disk import Disk
from bushel.cache.prefix.disk_tier import DiskFetch, DiskTier
from bushel.cache.prefix.image_features import ImageFeatures, ImagePart
from bushel.cache.prefix.kv_segment import KVSegment, SegmentLayout, parts_of
from bushel.cache.prefix.memory_budget import MemoryBudget
from bushel.cache.prefix.node import Edge, Node
from bushel.cache.prefix.paged_segment import PagedForm, PagedSegment
from bushel.cache.prefix.prompt_ends import PromptEnds
from bushel.cache.prefix.radix_tree import RadixTree, TreeWalk
from bushel.cache.prefix.snapshot import PrefixSnapshot
from bushel.cache.prefix.token_key import Key, digest_of
from bushel.core import IntegrityError
from bushel.core.reuse import Hit, Miss
from bushel.models.device import raise_device_fault

log = logging.getLogger(__name__)

E = TypeVar("E")


@dataclass(frozen=True)
class ReusePlan:
    """What of a prompt need not be computed."""

    position: int = 0  # tokens
    hit: Hit | Literal[""] = ""  # empty: none
    why: str = ""  # not more
    reason: Miss | Literal[""] = ""  # the same in a word; empty: nothing was left out
    fork: int = 0  # where the prompt leaves what is known, if a state there would serve others
    nodes: tuple[Node, ...] = ()  # whose edges hold these tokens


def cannot_restore(state: Sequence[Layer]) -> str | None:
    """Why state like this, of a row that has run a token, could not be made again."""
    for kind, layer in parts_of(state):
        if isinstance(kind, CopiedWhole | Fixed):
            return f"state of {type(layer).__name__} cannot be kept"
        if getattr(layer, "keep", 0):
            return "a sliding window with pinned tokens cannot be kept"
    return None


def _edges(nodes: Sequence[Node], sort: type[E]) -> list[E]:
    edges = [node.edge for node in nodes if isinstance(node.edge, sort)]
    if len(edges) < len(nodes):
        raise IntegrityError("the state of some tokens is not in memory")
    return edges


class PrefixCache:
    """sample: state of a row that has run a token. bits: of keys and values when kept.

    disk: opens the files for state of this form, if there are to be any.
    """

    def __init__(
        self,
        make_state: Callable[[], list[Layer]],
        sample: Sequence[Layer],
        limit: int,
        buffer_limit: int,
        bits: int | None = None,
        disk: Callable[[str], Disk] | None = None,
    ):
        self._make_state = make_state
        self._layout = SegmentLayout.of(sample, bits)
        paged = table_of(sample) is not None and bits is None
        self._pages = PagedForm(self._layout, make_state) if paged else None
        self._cannot_be_cut = [not kind.appends for kind, _ in parts_of(sample)]
        self.needs_snapshots = any(self._cannot_be_cut)
        self._most = limit, buffer_limit
        self.budget = MemoryBudget(limit, buffer_limit)
        self._tree = RadixTree(self.budget, self.needs_snapshots)
        self._shelf = ImageFeatures(self.budget)
        self.ends = PromptEnds(self.budget)
        rest = self._rest(sample, 0, False, np.zeros(1, np.int64))
        form = f"{self._layout} {[(name, array.dtype) for name, array in rest.named().items()]}"
        self._tier = (
            DiskTier(disk(form), self._tree, self._layout, rest, self._pages)
            if disk is not None
            else None
        )
        self.hits: dict[str, int] = {}
        self.reused_tokens = self.asked_tokens = 0

    def features(self, root: str) -> ImagePart:
        """What the vision tower made of images, in requests of this salt."""
        return ImagePart(self._shelf, root)

    # -- plan --------------------------------------------------------------------------------

    def plan(self, root: str, key: Key, most: int) -> ReusePlan:
        """For a prompt of this key, of which at most so many tokens may be restored."""
        walk = self._tree.walk(root, key)
        position = self._position(walk, most)
        nodes = tuple(node for node in walk.nodes if node.start < position)
        fork = self._fork(walk, position) if walk.matched < min(most, len(key) - 1) else 0
        reason, why = self._why(walk, position, most)
        return ReusePlan(position, self._hit(walk, position, key), why, reason, fork, nodes)

    def _position(self, walk: TreeWalk, most: int, *, files: bool = False) -> int:
        """How far every layer can be restored from memory, or also from files."""
        last = min(walk.matched, most)
        if not files:
            loaded = takewhile(lambda node: node.edge is not None, walk.nodes)
            last = min(last, max((node.end for node in loaded), default=0))
        if not self.needs_snapshots:
            return last
        resting = (
            node.end
            for node in reversed(walk.nodes)
            if node.end <= last and (node.snapshot is not None or (files and node.resting))
        )
        return next(resting, 0)

    def ahead(self, root: str, key: Key, most: int) -> DiskFetch | None:
        """Begin to read what would let more of a prompt be restored; None if nothing would."""
        if self._tier is None:
            return None
        walk = self._tree.walk(root, key)
        position = self._position(walk, most, files=True)
        if position <= self._position(walk, most):
            return None
        nodes = [node for node in walk.nodes if node.start < position]
        return self._tier.fetch(root, key[:position], nodes)

    def arrived(self, fetch: DiskFetch) -> None:
        """All of it has been read, or failed to be."""
        if self._tier is not None:
            self._tier.take(fetch)

    def wait(self, seconds: float) -> None:
        """Until something has been read."""
        if self._tier is not None:
            self._tier.disk.wait(seconds)

    def _fork(self, walk: TreeWalk, position: int) -> int:
        """Inside a reply nobody will part again: replies are not sent twice."""
        if not self.needs_snapshots or walk.matched <= position:
            return 0
        last = walk.nodes[-1]
        # A reply's edge begins with the prompt's last token.
        inside = last.generated and walk.matched > last.start + 1
        return 0 if inside else walk.matched

    def _hit(self, walk: TreeWalk, position: int, key: Key) -> Hit | Literal[""]:
        if not position:
            return ""
        last, whole = walk.nodes[-1], len(key) - 1
        if walk.matched >= whole:
            there = any(
                node.end == position == whole and "prompt" in node.sorts for node in walk.nodes
            )
            return "exact" if there else "shorter"
        return "fork" if walk.matched < last.end or last.children else "prefix"

    def _why(self, walk: TreeWalk, position: int, most: int) -> tuple[Miss | Literal[""], str]:
        """Why not more was found, in a word and in words."""
        if position >= most:
            return "", ""
        if not walk.matched:
            return "unknown", "nothing that is kept begins like this prompt"
        if position < min(walk.matched, most):
            agree = f"{walk.matched} tokens agree with what is kept"
            return "no_state", f"{agree}, the last state of all layers is at {position}"
        return "diverged", f"what is kept goes on otherwise, or ends, at token {walk.matched}"

    # -- restore -----------------------------------------------------------------------------

    def restore(self, reuse: ReusePlan, key: Key, length: int) -> list[Layer] | None:
        """State of a row that will run `length` tokens; None if it has to be computed.

        key: of the prompt for which this was planned.
        """
        if not reuse.position:
            return None
        try:
            return self._restored(reuse, key[: reuse.position], length)
        except Exception as error:  # whatever is wrong with it, the tokens can be run
            raise_device_fault(error)
            log.warning("what was kept of a prompt cannot be restored: %s", error)
            self.discard(reuse)
            return None

    def _restored(self, reuse: ReusePlan, key: Key, length: int) -> list[Layer]:
        state, position = self._make_state(), reuse.position
        if self._pages is not None:
            self._pages.assemble(_edges(reuse.nodes, PagedSegment), key, state)
        else:
            self._layout.assemble(_edges(reuse.nodes, KVSegment), key, length, state)
        last = reuse.nodes[-1]
        if self.needs_snapshots:
            if not isinstance(last.snapshot, PrefixSnapshot) or last.snapshot.digest != digest_of(
                key
            ):
                raise IntegrityError("a snapshot of other tokens")
            for (kind, layer), part in zip(parts_of(state), last.snapshot.parts, strict=True):
                if part is not None:
                    kind.restore(part, layer)
        for kind, layer in parts_of(state):
            kind.check(layer, [position])
        mx.eval([list(kind.arrays(layer)) for kind, layer in parts_of(state)])
        self._tree.touch(last)
        return state

    def discard(self, reuse: ReusePlan) -> None:
        """Let go of what a plan stands on; nobody should try it again."""
        for node in reuse.nodes[:1]:
            self._tree.discard(node)

    def count(self, reuse: ReusePlan, asked: int) -> None:
        """For the statistics: a prompt of so many tokens was planned like this."""
        self.hits[reuse.hit or "miss"] = self.hits.get(reuse.hit or "miss", 0) + 1
        self.reused_tokens += reuse.position
        self.asked_tokens += asked

    # -- keep --------------------------------------------------------------------------------

    def keep(
        self,
        root: str,
        key: Key,
        state: Sequence[Layer],
        sort: str,
        *,
        row: int = 0,
        batch: bool = False,
        generated: bool = False,
    ) -> None:
        """The state of a row that has run exactly the tokens of `key`."""
        try:
            self._keep(root, key, state, sort, row, batch, generated)
        except Exception as error:  # the row itself is fine
            raise_device_fault(error)
            log.warning("state cannot be kept for later prompts: %s", error)

    def _keep(
        self,
        root: str,
        key: Key,
        state: Sequence[Layer],
        sort: str,
        row: int,
        batch: bool,
        generated: bool,
    ) -> None:
        made: list[Any] = []
        evicted = self.budget.evicted

        def edge(start: int, end: int) -> Edge:
            if self._pages is not None:
                return self._pages.cut(state, row, key, start, end)
            segment = self._layout.cut(state, row, key, start, end)
            made.append(segment.arrays)
            return segment

        node = self._tree.insert(
            root, key, edge, node_there=self.needs_snapshots, generated=generated
        )
        if node is None:
            return
        if self.needs_snapshots and node.snapshot is None:
            try:
                rest = self._rest(state, row, batch, key)
            except Exception:
                self._tree.unload_idle([node])
                raise
            made.append(rest.arrays)
            self._tree.rest(node, rest, sort)
        elif node.end == len(key):
            self._tree.mark(node, sort)
        else:
            node = None
        self._await_evicted(evicted)
        # Started now: a copy that still waits would keep the row from writing in place. Where
        # rows need most of the memory, nothing is started ahead of what it replaces.
        tight = self.budget.limit < self._most[0]
        (mx.eval if tight else mx.async_eval)(made)
        if self._tier is not None and node is not None:
            self._tier.write(root, node)

    def _await_evicted(self, before: int) -> None:
        """What was dropped before it was even computed is there until it is; pages are not."""
        shelves = self._shelf.used or self.ends.used
        arrays = self._pages is None or self.needs_snapshots or shelves
        if arrays and self.budget.evicted > before:
            mx.synchronize()

    def _rest(self, state: Sequence[Layer], row: int, batch: bool, key: Key) -> PrefixSnapshot:
        snapshots: list[LayerSnapshot | None] = []
        position = len(key)
        for (kind, layer), (_, fresh) in zip(
            parts_of(state), parts_of(self._make_state()), strict=True
        ):
            if kind.appends:
                snapshots.append(None)
            else:
                single = kind.single(layer, row, position, fresh) if batch else layer
                snapshots.append(kind.snapshot(single, position))
        return PrefixSnapshot(digest_of(key), tuple(snapshots))

    # -- looking after it --------------------------------------------------------------------

    def keep_to(self, limit: int) -> None:
        """Another limit, from the next `fit` on."""
        self._most = limit, self._most[1]

    def fit(self, spare: int, spare_buffers: int) -> None:
        """What rows were promised comes first: no more than is left beside them."""
        limit, buffers = self._most
        evicted = self.budget.evicted
        self.budget.shrink(min(limit, spare), min(buffers, spare_buffers))
        self._await_evicted(evicted)

    def reclaim(self, pool: PagePool, count: int) -> None:
        """Let go of what was not used for longest until so many pages are free."""
        while pool.free < count and self.budget.evict_oldest():
            pass

    def settle(self) -> None:
        """Between steps."""
        if self._tier is not None:
            self._tier.settle()

    def clear(self) -> None:
        """Forget everything, on disk too."""
        self._tree.clear()
        self._shelf.clear()
        self.ends.clear()
        if self._tier is not None:
            self._tier.clear()

    def distrust(self) -> None:
        """Forget all that is in memory. Files stay: they were written after a clean wait."""
        limits = self.budget.limit, self.budget.buffer_limit
        self.budget.shrink(0, 0)
        self.budget.shrink(*limits)

    def close(self) -> None:
        """Free all memory; files stay."""
        self._tree.clear()
        self._shelf.clear()
        self.ends.clear()
        if self._tier is not None:
            self._tier.close()

    def stats(self) -> dict[str, Any]:
        return {
            "limit_bytes": self._most[0],
            "bytes": self.budget.bytes,
            "buffers": self.budget.buffers,
            **self._tree.counts,
            "features": len(self._shelf),
            "feature_bytes": self._shelf.nbytes,
            "evicted": self.budget.evicted,
            "hits": dict(self.hits),
            "asked_tokens": self.asked_tokens,
            "reused_tokens": self.reused_tokens,
            **({} if self._tier is None else {"disk": asdict(self._tier.disk.stats)}),
        }

    def check_integrity(self) -> None:
        self._tree.check_integrity()
        counts = self._tree.counts
        held = counts["edge_bytes"] + counts["snapshot_bytes"]
        self.budget.check(held + self._shelf.nbytes + self.ends.nbytes)
        if self._tier is not None:
            self._tier.check_integrity()
