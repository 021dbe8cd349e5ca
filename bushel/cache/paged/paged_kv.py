"""Keys and values of the rows of a batch in pages, as a model's cache and as a kind of layer.

A model writes its step's keys through `update_and_fetch`, gets `PagedKeys` and `PagedValues` in
their place, and passes them on to attention, which knows them (`sdpa`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from bushel.cache.kv_layer import unwritten
from bushel.cache.layer_kind import Layer, LayerKind, LayerSnapshot
from bushel.cache.paged.attention import PAGE
from bushel.cache.paged.page_table import PageTable, pages_of


class NotPaged(Exception):
    """A model asks something of its keys that pages cannot answer: its rows are padded instead."""


class PagedKeys:
    """What stands for the keys of all rows. Only attention can read them."""

    def __init__(self, layer: PagedKVCache):
        self.layer = layer

    @property
    def shape(self) -> tuple[int, int, int, int]:
        longest = self.layer.pages.table.shape[1] * PAGE
        return (len(self.layer.pages.rows), self.layer.heads, longest, self.layer.keys.shape[1])

    @property
    def dtype(self) -> mx.Dtype:
        return self.layer.keys.dtype


class PagedValues(PagedKeys):
    pass


class PagedKVCache:
    """One layer of a batch. `keys` and `values` are [pages x heads x PAGE, D]."""

    def __init__(self, pages: PageTable, singles: Sequence[Layer]):
        self.pages = pages
        self.heads = singles[0].keys.shape[1]
        self.keys, self.values = (
            mx.zeros((0, array.shape[3]), array.dtype)
            for array in (singles[0].keys, singles[0].values)
        )
        for row, single in enumerate(singles):
            self.write(row, single)

    @property
    def offset(self) -> mx.array:
        """[B] tokens that each row has run."""
        return self.pages.offset

    @property
    def state(self) -> tuple[mx.array, mx.array]:
        return self.keys, self.values

    def write(self, row: int, single: Layer) -> None:
        """A row's tokens into the pages that it has."""
        self._fit()
        slots = self.pages.slots_of_row(row, single.offset, self.heads)
        self.keys[slots] = single.keys[:, :, : single.offset]
        self.values[slots] = single.values[:, :, : single.offset]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[PagedKeys, PagedValues]:
        self._fit()
        slots = self.pages.slots(self.heads)
        self.keys[slots] = keys
        self.values[slots] = values
        return PagedKeys(self), PagedValues(self)

    def make_mask(
        self, N: int, return_array: bool = False, window_size: int | None = None
    ) -> str | None:
        if return_array or window_size is not None:
            raise NotPaged("its attention asks for a mask of all tokens")
        return "causal" if N > 1 else None

    def row(self, row: int, end: int, start: int = 0) -> tuple[mx.array, mx.array]:
        """Keys and values of tokens [start, end) of one row: [1, heads, T, D]."""
        first = start // PAGE
        some = self.pages.rows[row][first : max(first + 1, pages_of(end))]
        pages, skipped = mx.array(some, dtype=mx.int32), first * PAGE

        def gathered(pool: mx.array) -> mx.array:
            by_page = pool.reshape(-1, self.heads, PAGE, pool.shape[1])[pages]
            whole = by_page.transpose(1, 0, 2, 3).reshape(1, self.heads, -1, pool.shape[1])
            return whole[:, :, start - skipped : end - skipped]

        return gathered(self.keys), gathered(self.values)

    def repack(self, pages: mx.array) -> None:
        """Keep these pages only, in this order."""

        def kept(pool: mx.array) -> mx.array:
            by_page = pool.reshape(-1, self.heads * PAGE * pool.shape[1])
            return by_page[pages].reshape(-1, pool.shape[1])

        self.keys, self.values = kept(self.keys), kept(self.values)

    def _fit(self) -> None:
        """As many pages as the table counts."""
        missing = self.pages.capacity * self.heads * PAGE - self.keys.shape[0]
        if missing > 0:
            self.keys, self.values = (
                mx.concatenate([pool, mx.zeros((missing, pool.shape[1]), pool.dtype)])
                for pool in (self.keys, self.values)
            )


def pageable_class(single: Layer) -> bool:
    """Whether such layers can go on in pages: those of plain keys and values."""
    return type(single).__name__ == "KVCache"


def pageable(single: Layer) -> bool:
    """Whether this row's layer can: if the model writes it."""
    return pageable_class(single) and not unwritten(single)


class PagedKV(LayerKind):
    """Only batches are of this kind; `BatchState` keeps their table."""

    name = "pages"
    appends = True

    def merge(self, singles: Sequence[Layer]) -> Layer:
        raise NotImplementedError("pages are made by whoever keeps their table")

    def join(self, batch: Layer, single: Layer) -> None:
        batch.write(len(batch.pages.rows) - 1, single)

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        if batch.pages.moved is not None:
            batch.repack(batch.pages.moved)

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        fresh.keys, fresh.values = map(mx.contiguous, batch.row(row, position))
        fresh.offset = position
        return fresh

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        raise NotImplementedError("a snapshot is taken of a single row")

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        raise NotImplementedError("a snapshot is restored to a single row")

    def cut(
        self, layer: Layer, row: int, position: int, start: int, end: int
    ) -> tuple[mx.array, ...]:
        cut: tuple[mx.array, mx.array] = layer.row(row, end, start)
        return cut

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        yield from layer.state

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        pages: Any = layer.pages
        self.require(
            len(pages.rows) == len(positions), f"{len(pages.rows)} rows for {len(positions)}"
        )
        pages.check_integrity(positions)
