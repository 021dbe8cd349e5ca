"""State that has no common shape: a batch is a list of its rows, and the model visits each.

What such a layer does with a row's state it does row by row (`models/row_positions`), and all
else for every row at once. Rows come and go without a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from bushel.cache.layer_kind import Layer, LayerKind


class RowList:
    """Singles of one layer, as they are."""

    def __init__(self, rows: Sequence[Layer]):
        self.rows = list(rows)

    @property
    def state(self) -> list[Any]:
        return [row.state for row in self.rows]


class ByRow(LayerKind):
    """`single_arrays` are those of one row; whoever copies rows says how."""

    def merge(self, singles: Sequence[Layer]) -> Layer:
        return RowList(singles)

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        batch.rows.extend(singles)

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        batch.rows = [batch.rows[row] for row in keep]

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        return batch.rows[row]

    def single_arrays(self, single: Layer) -> Iterator[mx.array]:
        leaves: Any = tree_flatten(single.state)
        yield from (value for _, value in leaves if isinstance(value, mx.array))

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        for row in getattr(layer, "rows", [layer]):
            yield from self.single_arrays(row)

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        rows = getattr(layer, "rows", [layer])
        self.require(len(rows) == len(positions), f"{len(rows)} rows for {len(positions)}")
