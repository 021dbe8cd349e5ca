"""Which pages hold which row's tokens: one table for all layers of a batch.

    row 0   7 2 9          tokens 0..15 in page 7, 16..31 in page 2, the rest in page 9
    row 1   0 4
    free    1 3 5 6 8

A row that comes takes pages, a row that goes gives them back; nobody else's move. What a step needs
on the device is made once for all layers. Everything here is the host's, and belongs to the thread
that owns MLX.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from bushel.cache.paged.attention import PAGE, PARTITION
from bushel.core import IntegrityError
from bushel.core.footprint import STEP

# Pages for each row by which the pool grows: with a row's last page, which may be nearly empty, the
# tokens that the libraries' caches grow by, as promises of memory count them.
_GROWTH = STEP // PAGE - 1


def pages_of(tokens: int) -> int:
    return -(-tokens // PAGE)


class PageTable:
    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.capacity = 0  # pages that every layer is to have
        self.moved: mx.array | None = None  # where each page was before the last row left
        self._free: list[int] = []  # the next one last
        self._slots: dict[int, mx.array] = {}  # of this step, by heads
        self._row_slots: dict[tuple[int, int, int], mx.array] = {}  # of rows that came since
        self._places: tuple[np.ndarray, np.ndarray] | None = None  # of its tokens [B, L]
        self._table = np.zeros((0, 0), np.int32)
        self.after: list[int] = []  # tokens of each row when this step has run
        self.offset = self.lengths = self.table = mx.zeros(0, mx.int32)

    def join(self, tokens: int) -> None:
        """One more row, which brings so many tokens."""
        self.rows.append(self._take(pages_of(tokens)))

    def leave(self, keep: Sequence[int]) -> None:
        """Keep these rows, in order. A pool of which most lies idle is made smaller: `moved`."""
        self._row_slots = {}
        kept = set(keep)
        for row, pages in enumerate(self.rows):
            if row not in kept:
                self._free.extend(reversed(pages))
        self.rows = [self.rows[row] for row in keep]
        used = [page for pages in self.rows for page in pages]
        self.moved = None
        if self.capacity > 2 * (len(used) + _GROWTH * len(self.rows)):
            self.moved = mx.array(used, dtype=mx.int32)
            fresh = iter(range(len(used)))
            self.rows = [[next(fresh) for _ in row] for row in self.rows]
            self.capacity, self._free = len(used), []

    def reserve(self, positions: Sequence[int], count: int) -> None:
        """A step in which every row goes on by so many tokens from where it stands."""
        for pages, position in zip(self.rows, positions, strict=True):
            missing = pages_of(position + count) - len(pages)
            if missing > 0:
                pages.extend(self._take(missing))
        starts = np.array(positions, np.int64)
        self._fill_table(int(starts.max()) + count)
        tokens = starts[:, None] + np.arange(count)
        pages_at = self._table[np.arange(len(self.rows))[:, None], tokens // PAGE]
        self._places = pages_at.astype(np.int64), tokens % PAGE  # the page, and where in it
        self._slots, self._row_slots = {}, {}
        self.after = [position + count for position in positions]
        self.offset = mx.array(starts.astype(np.int32))
        self.lengths = mx.array((starts + count).astype(np.int32))

    def _fill_table(self, longest: int) -> None:
        width = -(-longest // PARTITION) * (PARTITION // PAGE)
        table = np.zeros((len(self.rows), width), np.int32)
        for row, pages in enumerate(self.rows):
            table[row, : len(pages)] = pages
        self._table = table
        self.table = mx.array(table)

    def slots(self, heads: int) -> mx.array:
        """Where this step's tokens go, in keys [page x head x place in it]: [B, heads, L]."""
        if heads not in self._slots:
            assert self._places is not None
            pages, places = self._places
            head = np.arange(heads)[:, None]
            at = (pages[:, None] * heads + head) * PAGE + places[:, None]
            self._slots[heads] = mx.array(at.astype(np.int32))
        return self._slots[heads]

    def slots_of_row(self, row: int, tokens: int, heads: int) -> mx.array:
        """Where the first tokens of a row are: [1, heads, tokens]. Made once for layers alike."""
        asked = row, tokens, heads
        if asked not in self._row_slots:
            token = np.arange(tokens)
            pages = np.array(self.rows[row], np.int64)[token // PAGE]
            at = (pages * heads + np.arange(heads)[:, None]) * PAGE + token % PAGE
            self._row_slots[asked] = mx.array(at[None].astype(np.int32))
        return self._row_slots[asked]

    def _take(self, count: int) -> list[int]:
        missing = count - len(self._free)
        if missing > 0:
            more = max(missing, _GROWTH * len(self.rows))
            self._free[:0] = range(self.capacity + more - 1, self.capacity - 1, -1)
            self.capacity += more
        return [self._free.pop() for _ in range(count)]

    def check_integrity(self, positions: Sequence[int]) -> None:
        """Every page is somebody's or free, once, and every row has those that it needs."""
        used = [page for pages in self.rows for page in pages]
        if sorted(used + self._free) != list(range(self.capacity)):
            raise IntegrityError(f"{self.capacity} pages are not each held or free, once")
        for pages, position in zip(self.rows, positions, strict=True):
            if len(pages) < pages_of(position):
                raise IntegrityError(f"{len(pages)} pages for {position} tokens")
