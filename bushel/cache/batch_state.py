"""The state of all rows that decode together: `(positions, layers)` (B1).

One row keeps the library's plain single-row caches, exactly as its own loop would; two or
more share its batch caches. The change between the two forms happens here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx

from bushel.cache import kv_padding
from bushel.cache.kinds import kind_of
from bushel.cache.layer_kind import Layer, LayerSnapshot
from bushel.cache.paged.page_table import PageTable
from bushel.cache.paged.paged_kv import PagedKVCache, pageable
from bushel.core import IntegrityError
from bushel.models.device import ON_CUDA


@dataclass(frozen=True)
class Snapshot:
    """One row's state after `position` tokens."""

    position: int
    layers: tuple[LayerSnapshot, ...]

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def restore(self, fresh: list[Layer]) -> list[Layer]:
        pairs = zip(self.layers, fresh, strict=True)
        return [kind_of(layer).restore(part, layer) for part, layer in pairs]


def take_snapshot(state: Sequence[Layer], position: int) -> Snapshot:
    """Copy a single row's state; evaluated, so that it holds no graph and no other buffer."""
    snapshot = Snapshot(
        position, tuple(kind_of(layer).snapshot(layer, position) for layer in state)
    )
    mx.eval([part.arrays for part in _flat(snapshot.layers)])
    return snapshot


def _flat(layers: Sequence[LayerSnapshot]) -> Iterator[LayerSnapshot]:
    for layer in layers:
        yield layer
        yield from _flat(layer.parts)


class BatchState:
    """Owned by one decode batch. `layers` is the list object that the model sees."""

    def __init__(self, make_state: Callable[[], list[Layer]], *, paged: bool = False):
        """paged: rows that share the batch have pages where they can, and are not padded."""
        self._make_state = make_state
        self._paged = paged
        self._pages: PageTable | None = None  # of two rows and more
        self.layers: list[Layer] = []
        self.positions: list[int] = []  # tokens run, per row
        self._enough_until: float = math.inf  # where a row that is alone needs other room

    def __len__(self) -> int:
        return len(self.positions)

    def join(self, state: list[Layer], position: int) -> None:
        """Take over a single row's state; the caller must not use it again."""
        if self.positions and not (position and self.positions[0]):
            raise IntegrityError("a row that has run no token cannot share a batch")
        if not self.positions:
            self.layers = state
        elif len(self.positions) == 1:
            if self._paged:
                self._pages = PageTable()
                self._pages.join(self.positions[0])
                self._pages.join(position)
            pairs = zip(self.layers, state, strict=True)
            self.layers = [self._merged(first, second) for first, second in pairs]
        else:
            if self._pages is not None:
                self._pages.join(position)
            for batch, single in zip(self.layers, state, strict=True):
                kind_of(batch).join(batch, single)
        self.positions.append(position)
        self._make_room()

    def _merged(self, first: Layer, second: Layer) -> Layer:
        if self._pages is not None and pageable(first):
            return PagedKVCache(self._pages, [first, second])
        return kind_of(first).merge([first, second])

    def leave(self, keep: Sequence[int]) -> None:
        if len(keep) == len(self.positions):
            return
        self.positions = [self.positions[row] for row in keep]
        if not keep:
            self.layers, self._pages = [], None
        elif len(keep) == 1:
            self.layers = self._single(keep[0], self.positions[0])
            self._pages = None
        else:
            if self._pages is not None:
                self._pages.leave(keep)
            for layer in self.layers:
                kind_of(layer).leave(layer, keep, self.positions)
        self._make_room()

    def snapshot(self, row: int) -> Snapshot:
        """A copy of one row's state; the row stays."""
        position = self.positions[row]
        alone = self._single(row, position) if len(self.positions) > 1 else self.layers
        return take_snapshot(alone, position)

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
        if self._pages is not None:
            self._pages.reserve(self.positions, count)

    def advance(self, counts: Sequence[int]) -> None:
        """Row i has run counts[i] more tokens."""
        pairs = zip(self.positions, counts, strict=True)
        self.positions = [position + count for position, count in pairs]
        if self.positions[0] >= self._enough_until:
            self._make_room()

    def settle(self) -> list[mx.array]:
        """Small bookkeeping arrays that no computation may read, to be evaluated now and then.

        Left alone they are chains that grow by one node per step and layer.
        """
        return [array for array in self._arrays() if array.ndim <= 1]

    def early(self) -> list[mx.array]:
        """What a forward pass has computed when it is through about a quarter of the layers."""
        some = self.layers[len(self.layers) // 4 :][:1]
        return [array for layer in some for array in kind_of(layer).arrays(layer) if array.ndim > 1]

    def _arrays(self) -> Iterator[mx.array]:
        for layer in self.layers:
            yield from kind_of(layer).arrays(layer)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays())

    @property
    def held(self) -> int:
        """Bytes, of which some may be nobody's: of rows that have pages; of others 0."""
        return 0 if self._pages is None else self.nbytes

    @property
    def buffers(self) -> int:
        return sum(1 for _ in self._arrays())

    def check_integrity(self) -> None:
        if not self.positions and self.layers:
            raise IntegrityError("layers are held for no row")
        for layer in self.layers:
            kind_of(layer).check(layer, self.positions)
