"""Which pages hold which row's tokens: one table for all layers of a batch, or of a lone row.

A row that comes brings its pages, a row that goes drops them; nobody's tokens move. What a step
needs on the device is made once for all layers. What the host does for a step grows with the rows:
the table is sent again only when a row has taken a page.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from bushel.cache.paged.attention import PARTITION
from bushel.cache.paged.page_kernels import PAGE
from bushel.cache.paged.page_pool import PageList, PagePool, pages_of
from bushel.core import IntegrityError

_WIDE = PARTITION // PAGE  # pages by which the table is widened


class PageTable:
    def __init__(self, pool: PagePool):
        self.pool = pool
        self.rows: list[PageList] = []
        self.after: list[int] = []  # tokens of each row when this step has run
        self.offset: mx.array | int = 0  # of each row before it
        self.lengths = self.table = mx.zeros(0, mx.int32)
        self._host = np.zeros((0, 0), np.int32)
        self.starts: list[int] | None = None  # of rows whose prompts run together; None: a step
        self.again: list[int] = []  # tokens of each that have run before, and are not written
        self._count = 0  # tokens of this step, of each row
        self._slots: dict[int, mx.array] = {}  # of this step, by heads
        self._layout: int | None = None  # of the pool, when the table was written; None: anew

    def join(self, pages: PageList) -> None:
        self.rows.append(pages)
        self._layout = None

    def leave(self, keep: Sequence[int]) -> None:
        """Keep these rows, in order."""
        self.rows = [self.rows[row] for row in keep]
        self._layout = None

    def reserve(self, positions: list[int], count: int) -> None:
        """A step in which every row goes on by so many tokens from where it stands."""
        changed: list[tuple[int, int]] = []  # rows, and from which of their pages on
        for row, (pages, position) in enumerate(zip(self.rows, positions, strict=True)):
            before = len(pages.ids)
            if self.pool.make_writable(pages, position, count):
                changed.append((row, position // PAGE))
            elif len(pages.ids) > before:
                changed.append((row, before))
        self.after = [position + count for position in positions]
        self._write_table(max(self.after), changed)
        self.offset = positions[0] if len(positions) == 1 else mx.array(positions, dtype=mx.int32)
        self.lengths = mx.array(self.after, dtype=mx.int32)
        self._count, self._slots = count, {}

    def reserve_prompts(
        self, positions: list[int], counts: list[int], width: int, again: list[int]
    ) -> None:
        """A pass in which each row goes on by tokens of its own from where it stands, after some
        that it has run before.

        All are given pages for as many as the widest, until `end_prompts`. What is beyond a row's
        own tokens is written, but nobody reads it before someone has written over it.
        """
        starts = [position - run for position, run in zip(positions, again, strict=True)]
        rows = zip(self.rows, positions, counts, starts, strict=True)
        for pages, position, count, start in rows:
            self.pool.make_writable(pages, position, count)
            self.pool.extend(pages, pages_of(start + width) - len(pages.ids))
        pairs = zip(positions, counts, strict=True)
        self.after = [position + count for position, count in pairs]
        self.starts, self.again = starts, again
        self.offset = starts[0] if len(starts) == 1 else mx.array(starts, dtype=mx.int32)

    def end_prompts(self) -> None:
        """The pass is on its way: rows keep the pages of their own tokens."""
        for pages, end in zip(self.rows, self.after, strict=True):
            self.pool.trim(pages, pages_of(end))

    def go_back(self, positions: Sequence[int]) -> None:
        """Rows stand here after all, and not where the last step went."""
        for pages, position in zip(self.rows, positions, strict=True):
            self.pool.go_back(pages, position)

    def _write_table(self, longest: int, changed: list[tuple[int, int]]) -> None:
        width = -(-longest // PARTITION) * _WIDE
        if self._layout != self.pool.layout or self._host.shape != (len(self.rows), width):
            self._layout = self.pool.layout
            self._host = np.zeros((len(self.rows), width), np.int32)
            changed = [(row, 0) for row in range(len(self.rows))]
        for row, first in changed:
            ids = self.rows[row].ids
            self._host[row, first : len(ids)] = ids[first:]
        if changed:
            self.table = mx.array(self._host)

    def slots(self, heads: int) -> mx.array:
        """Where this step's tokens go, in keys [page x head x place in it]: [B, heads, L]."""
        if heads not in self._slots:
            ends = np.array(self.after)[:, None]
            tokens = ends - self._count + np.arange(self._count)
            pages = self._host[np.arange(len(self.rows))[:, None], tokens // PAGE].astype(np.int64)
            head = np.arange(heads)[:, None]
            at = (pages[:, None] * heads + head) * PAGE + (tokens % PAGE)[:, None]
            self._slots[heads] = mx.array(at.astype(np.int32))
        return self._slots[heads]

    @property
    def nbytes(self) -> int:
        """Of the pages that any of its rows holds."""
        held = {page for pages in self.rows for page in pages.ids}
        return len(held) * self.pool.page_bytes

    def check_integrity(self, positions: Sequence[int]) -> None:
        if len(self.rows) != len(positions):
            raise IntegrityError(f"{len(self.rows)} lists of pages for {len(positions)} rows")
        for pages, position in zip(self.rows, positions, strict=True):
            if len(pages.ids) != pages_of(position):
                raise IntegrityError(f"{len(pages.ids)} pages for {position} tokens")
