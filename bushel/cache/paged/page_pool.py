"""All pages of a model: which are free, who holds the others, and how far each is written.

    page      0    1    2    3    4    5
    row A     x    x         x                tokens 0..37 in pages 0, 1, 3
    row B     x    x    x                     the same first 32 tokens, then others
    kept      x    x                          what the prefix tree holds of both
    free                          4    5

A page belongs to whoever holds it; many may. Its tokens never change under them: whoever stands
exactly where its writing ends may go on in it, and anyone else goes on in a copy. Pages go back
when their list is dropped, as the memory of an array does. Owned by the thread that owns MLX.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from bushel.cache.paged.layer_pages import LayerPages
from bushel.cache.paged.page_kernels import PAGE
from bushel.core import IntegrityError
from bushel.models.device import raise_device_fault

# By which part of itself the pool grows, and by how many pages at least, if it may: each time waits
# for the device and copies all of it.
_GROWTH, _LEAST = 0.25, 32

log = logging.getLogger(__name__)


def pages_of(tokens: int) -> int:
    return -(-tokens // PAGE)


class PageList:
    """Pages that someone holds, in order. kept: by the prefix tree, and not by a row."""

    __slots__ = ("__weakref__", "ids", "kept", "pool")

    def __init__(self, pool: PagePool, ids: list[int], *, kept: bool):
        self.pool, self.ids, self.kept = pool, ids, kept

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.pool._release(self)

    def share(self, first: int = 0, last: int | None = None, *, kept: bool = False) -> PageList:
        """Some of them, for someone else as well."""
        return self.pool.hold(self.ids[first:last], kept=kept)


class PagePool:
    def __init__(self, layers: int = 0):
        self.layers = [LayerPages() for _ in range(layers)]
        self.capacity = 0
        self.limit: int | None = None  # pages that memory allows; None: any number
        self.least = 0  # pages that stay allocated, as far as memory allows
        self.reclaim: Callable[[int], None] = lambda _: None  # asks others to let so many be free
        self.layout = 0  # of what page is where: changes when pages are renumbered
        self.of_rows = self.of_kept = 0  # pages that any row holds, that the tree holds
        self._lists: weakref.WeakSet[PageList] = weakref.WeakSet()
        self._free: list[int] = []  # the next one last
        self._holders = np.zeros((2, 0), np.int32)  # of each page: rows, edges of the tree
        self._filled = np.zeros(0, np.int8)  # places of each page that are written

    @property
    def page_bytes(self) -> int:
        return sum(layer.page_bytes for layer in self.layers)

    @property
    def nbytes(self) -> int:
        """All that is allocated."""
        return sum(layer.page_bytes * layer.capacity for layer in self.layers)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.capacity - len(self._free)

    # -- holding -----------------------------------------------------------------------------

    def new(self) -> PageList:
        return self.hold([], kept=False)

    def hold(self, ids: list[int], *, kept: bool) -> PageList:
        """Pages that someone else holds already."""
        pages = PageList(self, ids, kept=kept)
        self._lists.add(pages)
        self._count(ids, kept, 1)
        return pages

    def extend(self, pages: PageList, count: int) -> None:
        """So many more, which nobody else holds."""
        if count <= 0:
            return
        taken = self._take(count)
        self._filled[taken] = 0
        self._count(taken, pages.kept, 1)
        pages.ids.extend(taken)

    def trim(self, pages: PageList, count: int) -> None:
        """Keep so many of a list. Whoever is given the others writes after what is on its way."""
        gone = pages.ids[count:]
        del pages.ids[count:]
        self._count(gone, pages.kept, -1)

    def make_writable(self, pages: PageList, position: int, count: int) -> bool:
        """Let the holder of a list write so many tokens from a position on; whether a page of the
        list has become another.
        """
        first, place = divmod(position, PAGE)
        changed = False
        if first < len(pages.ids) and not self._may_write(pages.ids[first], place):
            self._copy(pages, first)
            changed = True
        self.extend(pages, pages_of(position + count) - len(pages.ids))
        last, end = divmod(position + count - 1, PAGE)
        if last > first:
            self._filled[pages.ids[first:last]] = PAGE
        self._filled[pages.ids[last]] = end + 1
        return changed

    def go_back(self, pages: PageList, position: int) -> None:
        """The holder of a list, who wrote last, stands here: what is behind was not written."""
        self.trim(pages, pages_of(position))
        self._filled[pages.ids[-1]] = (position - 1) % PAGE + 1

    def _may_write(self, page: int, place: int) -> bool:
        rows, kept = self._holders[:, page].tolist()
        return rows + kept == 1 or bool(self._filled[page] == place)

    def _copy(self, pages: PageList, at: int) -> None:
        """A page of a list becomes one that nobody else holds."""
        (target,) = self._take(1)
        source = pages.ids[at]
        try:
            for layer in self.layers:
                layer.copy(source, target)
        except Exception:
            self._free.append(target)
            raise
        pages.ids[at] = target
        self._count([target], pages.kept, 1)
        self._count([source], pages.kept, -1)

    def _release(self, pages: PageList) -> None:
        self._count(pages.ids, pages.kept, -1)

    def _count(self, ids: Sequence[int], kept: bool, change: int) -> None:
        if not ids:
            return
        held = self._holders[int(kept)]
        some = np.array(ids)
        held[some] += change
        edge = 1 if change > 0 else 0  # pages that such a holder has now, or no longer
        turned = change * int(np.count_nonzero(held[some] == edge))
        if kept:
            self.of_kept += turned
        else:
            self.of_rows += turned
        if change < 0:
            free = some[self._holders[:, some].sum(axis=0) == 0]
            self._free.extend(free[::-1].tolist())

    # -- size --------------------------------------------------------------------------------

    def _take(self, count: int) -> list[int]:
        self.expect(count)
        taken = self._free[: -count - 1 : -1]
        del self._free[-count:]
        return taken

    def expect(self, count: int) -> None:
        """So many will be taken, bit by bit: grow once for all of them."""
        if count > len(self._free):
            self._find(count)

    def _find(self, count: int) -> None:
        """Have so many free: grow as far as memory allows, then ask for what is only kept."""
        more = max(count - len(self._free), int(self.capacity * _GROWTH), _LEAST)
        if self.limit is not None:
            more = min(more, max(0, self.limit - self.capacity))
        if count > len(self._free) + more:
            self.reclaim(count - more)
        more = max(more, count - len(self._free))  # what rows were promised, in any case
        if more > 0:
            self.resize(self.capacity + more)

    def resize(self, capacity: int) -> None:
        """More pages, or an error and as many as before; or fewer, if enough of them are free, in
        which case some are renumbered.
        """
        least = self.least if self.limit is None else min(self.least, self.limit)
        capacity = max(capacity, least)
        if capacity > self.capacity:
            self._grow(capacity)
        else:
            self._shrink(max(capacity, self.used))

    def _grow(self, capacity: int) -> None:
        try:
            for layer in self.layers:
                if layer.capacity != capacity:
                    layer.resize(capacity)
        except Exception:
            self._cut()
            raise
        more = capacity - self.capacity
        self._free[:0] = range(capacity - 1, self.capacity - 1, -1)
        self._holders = np.pad(self._holders, ((0, 0), (0, more)))
        self._filled = np.pad(self._filled, (0, more))
        self.capacity = capacity

    def _shrink(self, capacity: int) -> None:
        """As far as there is memory for it: layers are copied."""
        try:
            if capacity < self.capacity:
                self._renumber(capacity)
        except Exception as error:
            raise_device_fault(error)
            log.warning("%d pages stay allocated: %s", self.capacity, error)
        self._cut()

    def _renumber(self, capacity: int) -> None:
        """Pages that are held move into free ones among the first so many, and those behind go."""
        held: np.ndarray = self._holders.sum(axis=0) > 0
        sources = capacity + np.flatnonzero(held[capacity:])
        targets = np.flatnonzero(~held[:capacity])[: len(sources)]
        if len(sources):
            for layer in self.layers:  # if one cannot, nobody has missed anything
                layer.move(sources.tolist(), targets.tolist())
            self.layout += 1
        renumbered = np.arange(self.capacity)
        renumbered[sources] = targets
        for pages in self._lists:
            pages.ids[:] = renumbered[pages.ids].tolist() if pages.ids else []
        self._holders[:, targets] = self._holders[:, sources]
        self._filled[targets] = self._filled[sources]
        self._holders, self._filled = self._holders[:, :capacity], self._filled[:capacity]
        self._free = np.flatnonzero(self._holders.sum(axis=0) == 0)[::-1].tolist()
        self.capacity = capacity

    def _cut(self) -> None:
        """Layers that have more pages than the pool give them back; who cannot does no harm."""
        try:
            for layer in self.layers:
                if layer.capacity > self.capacity:
                    layer.resize(self.capacity)
        except Exception as error:
            raise_device_fault(error)
            log.warning("pages beyond %d stay allocated: %s", self.capacity, error)

    def fit(self, limit: int) -> None:
        """No more pages than so many from now on, as far as they are not held."""
        self.limit = limit
        if self.capacity > max(limit, self.used):
            self.resize(max(limit, self.used))

    def computable(self) -> bool:
        """Whether all that was written can be computed: later writes depend on it, and fail once an
        evaluation of one has failed. And whether every layer has the pages that it is asked for.
        """
        if not all(map(self._fits, self.layers)):
            return False
        try:
            mx.eval([array for layer in self.layers for array in layer.to_evaluate])
        except Exception as error:
            raise_device_fault(error)
            return False
        return True

    def clear(self) -> None:
        """Free what memory it may, when nobody holds a page. What layers look like stays known."""
        if not self.used:
            self.resize(0)

    # -- looking after it --------------------------------------------------------------------

    def check_integrity(self) -> None:
        """Every page is held as often as there are lists that name it, or free, once."""
        holders = np.zeros_like(self._holders)
        for pages in self._lists:
            _require(len(set(pages.ids)) == len(pages.ids), "a page is twice in a list")
            holders[int(pages.kept), pages.ids] += 1
        _require(np.array_equal(holders, self._holders), "pages are held by others than counted")
        free = np.flatnonzero(self._holders.sum(axis=0) == 0).tolist()
        _require(sorted(self._free) == free, f"{len(self._free)} pages free, not {len(free)}")
        counted = [int(np.count_nonzero(held)) for held in self._holders]
        _require(counted == [self.of_rows, self.of_kept], f"{counted} pages held, not as counted")
        for layer in self.layers:
            _require(self._fits(layer), f"a layer of {layer.capacity} pages, not {self.capacity}")

    def _fits(self, layer: LayerPages) -> bool:
        """It gets its first pages as it is written."""
        return not layer.capacity or layer.capacity >= self.capacity


def _require(ok: bool, what: str) -> None:
    if not ok:
        raise IntegrityError(f"page pool: {what}")
