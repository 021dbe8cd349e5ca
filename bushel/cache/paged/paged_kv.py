"""Keys and values in pages, as a model's cache and as a kind of layer.

a prompt runs    its tokens are written to its pages, and attention is given arrays: its own
                 keys, or all of the row's, put together for one layer at a time
a step of rows   attention is given `PagedKeys` and `PagedValues`, which it knows (`sdpa`): it
                 writes the step's tokens and reads everybody's pages
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from bushel.cache.layer_kind import Layer, LayerKind, LayerSnapshot
from bushel.cache.paged.layer_pages import LayerPages
from bushel.cache.paged.page_kernels import PAGE
from bushel.cache.paged.page_pool import PageList, PagePool
from bushel.cache.paged.page_table import PageTable
from bushel.core.footprint import LayerFootprint


class NotPaged(Exception):
    """A model asks something of its keys that pages cannot answer: its rows are padded instead."""


class PagedKeys:
    """What stands for the keys of all rows. Only attention can read them."""

    def __init__(self, layer: PagedKVCache, fresh: mx.array):
        self.layer = layer
        self.fresh = fresh  # of this step: [B, heads, L, D]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        rows, heads, _, dim = self.fresh.shape
        return (rows, heads, self.layer.pages.table.shape[1] * PAGE, dim)

    @property
    def dtype(self) -> mx.Dtype:
        return self.fresh.dtype


class PagedValues(PagedKeys):
    pass


class PagedKVCache:
    """One layer of a row whose prompt runs, or of a batch."""

    def __init__(self, store: LayerPages, pages: PageTable, *, batch: bool):
        self.store = store
        self.pages = pages
        self.batch = batch
        self.position = 0  # tokens, of a row that is in no batch

    @property
    def offset(self) -> mx.array | int:
        """Tokens that the row has run; of several rows [B]."""
        return self.pages.offset if self.batch else self.position

    @property
    def state(self) -> list[mx.array]:
        """What is there when all that was written is written."""
        return self.store.to_evaluate

    def empty(self) -> bool:
        return not self.batch and self.position == 0

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array] | tuple[PagedKeys, PagedValues]:
        if self.batch:
            if self.store.capacity < self.pages.pool.capacity:
                self.store.fit(self.pages.pool.capacity, keys, values)
            return PagedKeys(self, keys), PagedValues(self, values)
        start, count = self.position, keys.shape[2]
        self.append(keys, values)
        return (keys, values) if not start else self.row(0, 0, start + count)

    def append(self, keys: mx.array, values: mx.array) -> None:
        """The next tokens of a lone row: [1, heads, T, D]."""
        (pages,), count = self.pages.rows, keys.shape[2]
        if self.pages.after != [self.position + count]:  # the first layer of a pass
            self.pages.pool.make_writable(pages, self.position, count)
            self.pages.after = [self.position + count]
        self.write(0, self.position, keys, values)
        self.position += count

    def write(self, row: int, start: int, keys: mx.array, values: mx.array) -> None:
        """Tokens of a row into pages that it has."""
        self.store.fit(self.pages.pool.capacity, keys, values)
        first, end = start // PAGE, start + keys.shape[2]
        some = self.pages.rows[row].ids[first : -(-end // PAGE)]
        self.store.write(some, start % PAGE, keys, values)

    def trim(self, count: int) -> int:
        """A lone row forgets its newest tokens, as plain caches do."""
        self.position -= count
        self.pages.go_back([self.position])
        self.pages.after = []
        return count

    def row(self, row: int, start: int, end: int) -> tuple[mx.array, mx.array]:
        """Keys and values of tokens [start, end) of one row: [1, heads, T, D]."""
        some = self.pages.rows[row].ids[start // PAGE : -(-end // PAGE)]
        return self.store.read(some, start % PAGE, end - start)

    def make_mask(
        self, N: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | str | None:
        if not self.batch:
            # Late: mlx-lm changes the limits of the process that imports it.
            from mlx_lm.models.cache import create_attention_mask

            mask: mx.array | str | None = create_attention_mask(
                N, offset=self.position, return_array=return_array, window_size=window_size
            )
            return mask
        if return_array or window_size is not None:
            raise NotPaged("its attention asks for a mask of all tokens")
        return "causal" if N > 1 else None


def pageable(layer: Layer) -> bool:
    """Whether such layers can be in pages: those of plain keys and values."""
    return type(layer).__name__ == "KVCache"


def in_pages(state: list[Layer], pool: PagePool) -> list[Layer]:
    """Fresh state of a row, with pages where it can have them."""
    table = PageTable(pool)
    table.join(pool.new())
    stores = iter(pool.layers)
    for at, layer in enumerate(state):
        if pageable(layer):
            state[at] = PagedKVCache(next(stores), table, batch=False)
    return state


def table_of(state: Sequence[Layer]) -> PageTable | None:
    """The table of a row or a batch, if any of its layers is in pages."""
    tables = (layer.pages for layer in state if isinstance(layer, PagedKVCache))
    return next(tables, None)


def take_over(state: Sequence[Layer], pages: PageList) -> None:
    """Let a fresh row have these pages."""
    table = table_of(state)
    assert table is not None
    table.rows = [pages]


class PagedKV(LayerKind):
    """Rows that meet keep their pages: `BatchState` has the table."""

    name = "pages"
    appends = True

    def merge(self, singles: Sequence[Layer]) -> Layer:
        return singles[0]

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        return

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        return

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        return batch

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        """Its pages are held by whoever takes snapshots of all layers."""
        return LayerSnapshot(self.name, position, ())

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        fresh.position = snapshot.position
        return fresh

    def cut(
        self, layer: Layer, row: int, position: int, start: int, end: int
    ) -> tuple[mx.array, ...]:
        if not layer.store.written:
            return ()
        keys, values = layer.row(row, start, end)
        return keys, values

    def assemble(self, arrays: Sequence[mx.array], position: int, fresh: Layer) -> None:
        if arrays:
            keys, values = (array[:, :, :position] for array in arrays)
            fresh.append(keys, values)

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        """None of its own."""
        yield from ()

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        each = single.store.page_bytes // PAGE
        return [LayerFootprint(each, paged=True)] if each else []

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        if not layer.batch and layer.store.written:
            here = [layer.position]
            self.require(here == list(positions), f"at {here}, the row at {list(positions)}")
