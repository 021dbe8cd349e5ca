"""What a run of tokens left in pages: an edge of the tree that holds them, and copies nothing.

    pages    |0 . . . . . 15|16 . . . . 31|32 . . . . 47|
    upper    |------ [0, 21) ------|                          pages 0, 1
    lower                   |------- [21, 40) ------|         pages 1, 2; its lead are [16, 21)

Edges that meet inside a page both name it, or the lower one has a copy of its own; either way the
page of the lower one has the tokens of both. A row is made of the lowest edge's page wherever there
are two, after every page's tokens have been compared with those that the row is to have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bushel.cache.layer_kind import Layer
from bushel.cache.paged.page_kernels import PAGE
from bushel.cache.paged.page_pool import PageList, pages_of
from bushel.cache.paged.paged_kv import PagedKVCache, table_of, take_over
from bushel.cache.prefix.kv_segment import KVSegment, SegmentLayout
from bushel.cache.prefix.token_key import Key
from bushel.core import IntegrityError


@dataclass(frozen=True, eq=False)
class PagedSegment:
    form: PagedForm
    pages: PageList
    start: int  # tokens before it
    key: Key  # its own
    lead: Key  # those before it that lie in its first page

    buffers = 0  # of its own

    @property
    def end(self) -> int:
        return self.start + len(self.key)

    @property
    def nbytes(self) -> int:
        return len(self.pages.ids) * self.pages.pool.page_bytes

    @property
    def split_cost(self) -> tuple[int, int]:
        """Both halves name the page in which they meet."""
        return self.pages.pool.page_bytes, 0

    def covers(self, start: int, key: Key) -> bool:
        return self.start == start and np.array_equal(self.key, key)

    def split(self, at: int) -> tuple[PagedSegment, PagedSegment]:
        whole, cut = np.concatenate([self.lead, self.key]), len(self.lead) + at
        low = cut // PAGE
        upper = self.pages.share(0, pages_of(cut), kept=True)
        lower = self.pages.share(low, kept=True)
        return (
            PagedSegment(self.form, upper, self.start, self.key[:at].copy(), self.lead),
            PagedSegment(
                self.form,
                lower,
                self.start + at,
                self.key[at:].copy(),
                whole[low * PAGE : cut].copy(),
            ),
        )

    def segment(self) -> KVSegment:
        """As arrays."""
        return self.form.arrays_of(self)


@dataclass(frozen=True)
class PagedForm:
    """How edges are made of rows, and rows of edges."""

    layout: SegmentLayout
    new_row: Callable[[], list[Layer]]

    def cut(self, state: Sequence[Layer], row: int, key: Key, start: int, end: int) -> PagedSegment:
        """Tokens [start, end) of a row that has run those of `key`."""
        table = table_of(state)
        assert table is not None
        first = start // PAGE
        pages = table.rows[row].share(first, pages_of(end), kept=True)
        lead = key[first * PAGE : start]
        return PagedSegment(self, pages, start, key[start:end].copy(), lead.copy())

    def assemble(self, segments: Sequence[PagedSegment], key: Key, fresh: list[Layer]) -> None:
        """Let a fresh row hold the tokens of `key`.

        IntegrityError unless the pages are of exactly these tokens, without a hole.
        """
        ids: list[int] = []
        at = 0
        for segment in segments:
            first, lead = divmod(segment.start, PAGE)
            held = np.concatenate([segment.lead, segment.key])
            if segment.start != at or len(segment.lead) != lead or len(ids) != pages_of(at):
                raise IntegrityError(f"pages of tokens from {segment.start} on, instead of {at}")
            if len(segment.pages.ids) != pages_of(len(held)):
                raise IntegrityError(f"{len(segment.pages.ids)} pages for {len(held)} tokens")
            claimed = key[first * PAGE : segment.end]
            if not np.array_equal(held[: len(claimed)], claimed):
                raise IntegrityError(f"pages of other tokens, from {at} to {segment.end}")
            ids[first:] = segment.pages.ids
            at = segment.end
        if at < len(key):
            raise IntegrityError(f"{len(key) - at} of {len(key)} tokens are not there")
        pool = segments[0].pages.pool
        take_over(fresh, pool.hold(ids[: pages_of(len(key))], kept=False))
        _stand_at(fresh, len(key))

    def adopt(self, segment: KVSegment, before: PagedSegment | None) -> PagedSegment:
        """Arrays as an edge of pages, after the one that ends where they begin."""
        row, lead = self.new_row(), segment.start % PAGE
        lead_key = segment.key[:0]
        if lead:
            assert before is not None
            take_over(row, before.pages.share(len(before.pages.ids) - 1))
            lead_key = np.concatenate([before.lead, before.key])[-lead:]
        _stand_at(row, lead)
        self.layout.assemble([replace(segment, start=0)], segment.key, 0, row)
        table = table_of(row)
        assert table is not None
        pages = table.rows[0].share(kept=True)
        return PagedSegment(self, pages, segment.start, segment.key, lead_key)

    def arrays_of(self, segment: PagedSegment) -> KVSegment:
        row = self.new_row()
        take_over(row, segment.pages.share())
        held = np.concatenate([segment.lead, segment.key])
        arrays = self.layout.cut(row, 0, held, len(segment.lead), len(held))
        return replace(arrays, start=segment.start)


def _stand_at(state: Sequence[Layer], position: int) -> None:
    for layer in state:
        if isinstance(layer, PagedKVCache) and layer.store.written:
            layer.position = position
