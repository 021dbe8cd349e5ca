"""The state of all rows that decode together: `(positions, layers)` (B1).

One row keeps the library's plain single-row caches, exactly as its own loop would; two or
more share its batch caches. The change between the two forms happens here and nowhere else. Layers
in pages have one form: rows bring their pages along, and take them away.

Rows that take drafts have one form as well, one row or many: every row has its own length.

    begin_draft([3, 1])   row 0 runs its newest token and a draft of two, row 1 its newest alone
    forward               [2, 3] tokens: what is behind a row's own is filler
    end_draft([2, 1])     row 0 has run two of them: as if they had been run one by one
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx

from bushel.cache import kv_padding
from bushel.cache.drafts import Draft, draftable, recurrent_parts
from bushel.cache.kinds import kind_of
from bushel.cache.layer_kind import Layer, LayerSnapshot
from bushel.cache.paged.page_pool import PageList, PagePool
from bushel.cache.paged.page_table import PageTable
from bushel.cache.paged.paged_kv import PagedKVCache, table_of, take_over
from bushel.cache.ragged.row_lengths import RowLengths
from bushel.core import IntegrityError
from bushel.models.device import ON_CUDA


@dataclass(frozen=True)
class Snapshot:
    """One row's state after `position` tokens."""

    position: int
    layers: tuple[LayerSnapshot, ...]
    pages: PageList | None = None  # of the layers that are in pages: held, not copied

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def restore(self, fresh: list[Layer]) -> list[Layer]:
        if self.pages is not None:
            take_over(fresh, self.pages.share())
        pairs = zip(self.layers, fresh, strict=True)
        return [kind_of(layer).restore(part, layer) for part, layer in pairs]


def take_snapshot(state: Sequence[Layer], position: int, row: int = 0) -> Snapshot:
    """Copy a single row's state; evaluated, so that it holds no graph and no other buffer.

    row: in the table, of one whose other layers are a single's.
    """
    table = table_of(state)
    pages = None if table is None else table.rows[row].share()
    layers = tuple(kind_of(layer).snapshot(layer, position) for layer in state)
    mx.eval([part.arrays for part in _flat(layers)])
    return Snapshot(position, layers, pages)


def _flat(layers: Sequence[LayerSnapshot]) -> Iterator[LayerSnapshot]:
    for layer in layers:
        yield layer
        yield from _flat(layer.parts)


@dataclass(frozen=True)
class Mark:
    """A place to go back to. arrays: of recurrent layers, which have eaten what came before it."""

    positions: list[int]
    arrays: list[list[mx.array | None]]


class BatchState:
    """Owned by one decode batch. `layers` is the list object that the model sees."""

    def __init__(
        self,
        make_state: Callable[[], list[Layer]],
        pool: PagePool | None = None,
        *,
        drafts: bool = False,
    ):
        """pool: where layers of rows have their pages, if any have. drafts: rows may take some,
        which `no_drafts` has to allow.
        """
        self._make_state = make_state
        self._table = None if pool is None else PageTable(pool)
        self._lengths = RowLengths() if drafts else None
        self._draft: Draft | None = None
        self.layers: list[Layer] = []
        self.positions: list[int] = []  # tokens run, per row
        self._enough_until: float = math.inf  # where a row that is alone needs other room

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def batched(self) -> bool:
        """Whether its layers are in the form of a batch, and not that of a single."""
        return len(self.positions) > 1 or self._lengths is not None

    @property
    def context_tokens(self) -> int:
        """Tokens that a step attends to: in pages each row's own, and otherwise as many of each as
        the longest has.
        """
        if self._table is not None:
            return sum(self.positions)
        return len(self.positions) * max(self.positions, default=0)

    def _stand_at(self, positions: list[int]) -> None:
        self.positions = positions
        if self._lengths is not None:
            self._lengths.set(positions)

    def join(self, state: list[Layer], position: int) -> None:
        """Take over a single row's state; the caller must not use it again."""
        self.join_all([(state, position)])

    def join_all(self, rows: Sequence[tuple[list[Layer], int]]) -> None:
        """Take over the states of rows, with the position of each; what is there moves once."""
        positions = [*self.positions, *(position for _, position in rows)]
        if len(positions) > 1 and not all(positions):
            raise IntegrityError("a row that has run no token cannot share a batch")
        states = [state for state, _ in rows]
        for state in states:
            self._take_pages(state)
        if self.batched and self.positions:
            for batch, *singles in zip(self.layers, *states, strict=True):
                kind_of(batch).join(batch, singles)
        elif self._lengths is not None:
            columns = zip(*states, strict=True)
            self.layers = [draftable(column, self._lengths) for column in columns]
        elif len(positions) > 1:
            before = [self.layers] if self.positions else []
            columns = zip(*before, *states, strict=True)
            self.layers = [kind_of(column[0]).merge(column) for column in columns]
        else:
            (self.layers,) = states
        self._stand_at(positions)
        self._make_room()

    def _take_pages(self, state: list[Layer]) -> None:
        """Its layers in pages become the batch's."""
        table = table_of(state)
        if table is None or self._table is None:
            return
        self._table.join(table.rows[0])
        for at, layer in enumerate(state):
            if isinstance(layer, PagedKVCache):
                state[at] = PagedKVCache(layer.store, self._table, batch=True)

    def leave(self, keep: Sequence[int]) -> None:
        if len(keep) == len(self.positions):
            return
        self._stand_at([self.positions[row] for row in keep])
        if not keep:
            self.layers = []
        elif len(keep) == 1 and self._lengths is None:
            self.layers = self._single(keep[0], self.positions[0])
        else:
            for layer in self.layers:
                kind_of(layer).leave(layer, keep, self.positions)
        if self._table is not None:
            self._table.leave(keep)
        self._make_room()

    def single(self, row: int) -> list[Layer]:
        """One row's state, as another batch can take it over; this one must not go on with it."""
        return self._single(row, self.positions[row]) if self.batched else self.layers

    def snapshot(self, row: int) -> Snapshot:
        """A copy of one row's state; the row stays."""
        return take_snapshot(self.single(row), self.positions[row], row)

    def _single(self, row: int, position: int) -> list[Layer]:
        pairs = zip(self.layers, self._make_state(), strict=True)
        return [kind_of(layer).single(layer, row, position, fresh) for layer, fresh in pairs]

    def _make_room(self) -> None:
        self._enough_until = math.inf
        if ON_CUDA and len(self.positions) == 1:
            (position,) = self.positions
            for layer in self.layers:
                for kind, part in kind_of(layer).parts(layer):
                    kind.make_room(part, position, kv_padding.padded_length(position))
            self._enough_until = kv_padding.fits_until(position)

    def reserve(self, count: int) -> None:
        """Room for a step in which every row goes on by so many tokens; before each."""
        if self._table is not None:
            self._table.reserve(self.positions, count)

    def advance(self, counts: Sequence[int]) -> None:
        """Row i has run counts[i] more tokens."""
        pairs = zip(self.positions, counts, strict=True)
        self._stand_at([position + count for position, count in pairs])
        if self.positions[0] >= self._enough_until:
            self._make_room()

    def begin_draft(self, counts: Sequence[int]) -> None:
        """The next pass is a draft of so many tokens of each row; after `reserve` of the most."""
        self._draft = Draft(self.layers, self.positions, counts)

    def draft_ran(self) -> None:
        """Its pass has been built; others may be before it ends, of which it has no part."""
        if self._draft is not None:
            self._draft.ran()

    def end_draft(self, kept: Sequence[int]) -> None:
        """Row i has run kept[i] of them, at least one if it had any; nothing is left of others."""
        draft, self._draft = self._draft, None
        if draft is None:
            raise IntegrityError("no draft has begun")
        draft.end(kept)
        self.advance(kept)
        if self._table is not None:
            self._table.go_back(self.positions)

    def mark(self) -> Mark:
        """Where all rows are. Only of rows that may take drafts."""
        arrays = [list(part.cache) for part in recurrent_parts(self.layers)]
        return Mark(list(self.positions), arrays)

    def go_back(self, mark: Mark) -> None:
        """As they were, a few steps ago: no more than a draft may be long."""
        for part, arrays in zip(recurrent_parts(self.layers), mark.arrays, strict=True):
            part.cache = list(arrays)
        self._stand_at(list(mark.positions))
        if self._table is not None:
            self._table.go_back(self.positions)

    def settle(self) -> list[mx.array]:
        """Arrays that no computation may read, most of them small: to be evaluated now and then.

        Left alone they are chains that grow by one node per step and layer.
        """
        return [array for layer in self.layers for array in kind_of(layer).unread(layer)]

    def early(self) -> list[mx.array]:
        """What a forward pass has computed when it is through about a quarter of the layers."""
        some = self.layers[len(self.layers) // 4 :][:1]
        return [array for layer in some for array in kind_of(layer).arrays(layer) if array.ndim > 1]

    def _arrays(self) -> Iterator[mx.array]:
        for layer in self.layers:
            yield from kind_of(layer).arrays(layer)

    @property
    def nbytes(self) -> int:
        paged = 0 if self._table is None else self._table.nbytes
        return paged + sum(array.nbytes for array in self._arrays())

    @property
    def buffers(self) -> int:
        return sum(1 for _ in self._arrays())

    def check_integrity(self) -> None:
        if not self.positions and self.layers:
            raise IntegrityError("layers are held for no row")
        if self._table is not None:
            self._table.check_integrity(self.positions)
        for layer in self.layers:
            kind_of(layer).check(layer, self.positions)
