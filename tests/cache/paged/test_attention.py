"""Attention to pages against numpy: what it computes, and that a row's bits are its own.

Where there is no GPU its text is compiled for the CPU (`attend.cpp`), so that every line of it runs
in every test run.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest

from bushel.cache.paged.attention import PAGE, PARTITION, AttentionShape, attend
from tests.depth import one_in

PLAIN = AttentionShape(mx.float32, 4, 2, 64, 64, 1, 0.125)
# Heads in one group and in many, keys unlike values, sizes that are no power of two, a draft.
SHAPES = {
    "one head": PLAIN._replace(query_heads=2),
    "eight to one": PLAIN._replace(query_heads=8, heads=1),
    "more than a tile": PLAIN._replace(query_heads=6, heads=2, width=4),
    "80": PLAIN._replace(key_dim=80, value_dim=80),
    "wide keys": PLAIN._replace(key_dim=96, value_dim=64),
    "256": PLAIN._replace(key_dim=256, value_dim=256),
    "draft of eight": PLAIN._replace(width=8),
    "window": PLAIN._replace(window=40),
    "window of a draft": PLAIN._replace(window=300, width=5),
    "soft-cap": PLAIN._replace(softcap=2.0),
    "sinks": PLAIN._replace(sinks=True),
    "all": PLAIN._replace(width=3, window=270, softcap=3.0, sinks=True),
    "bfloat16": PLAIN._replace(dtype=mx.bfloat16),
}
# Inside a page, at a partition's end, one more, and several partitions.
LENGTHS = (9, 256, 257, 600)


pytestmark = pytest.mark.usefixtures("kernels_here")


# -- rows and pools ------------------------------------------------------------------------------


class Rows:
    """Random rows, and pages in random order that hold them."""

    def __init__(self, shape: AttentionShape, lengths: Sequence[int], seed: int = 0):
        self.shape, self.lengths = shape, list(lengths)
        rng = np.random.default_rng(seed)

        def some(*size: int) -> np.ndarray:
            values = mx.array(rng.normal(size=size).astype(np.float32)).astype(shape.dtype)
            return np.array(values.astype(mx.float32))

        self.queries = [some(shape.query_heads, shape.width, shape.key_dim) for _ in lengths]
        self.keys = [some(shape.heads, length, shape.key_dim) for length in lengths]
        self.values = [some(shape.heads, length, shape.value_dim) for length in lengths]
        self.sinks = some(shape.query_heads)

    def attend(self, rows: Sequence[int], *, seed: int = 0, spare: int = 3) -> np.ndarray:
        """What the kernel makes of these rows in one batch, from pools laid out by chance."""
        shape, rng = self.shape, np.random.default_rng(seed)
        counts = [-(-self.lengths[row] // PAGE) for row in rows]
        most = -(-max(self.lengths[row] for row in rows) // PARTITION) * (PARTITION // PAGE)
        places = rng.permutation(sum(counts) + spare)
        # What nobody wrote must not matter, whatever it is.
        keys = np.full((len(places), shape.heads, PAGE, shape.key_dim), np.nan, np.float32)
        values = np.full((len(places), shape.heads, PAGE, shape.value_dim), np.nan, np.float32)
        table = np.zeros((len(rows), most), np.int32)
        pages = iter(places)
        for at, (row, count) in enumerate(zip(rows, counts, strict=True)):
            table[at, :count] = [next(pages) for _ in range(count)]
            for token in range(self.lengths[row] - shape.width):
                page, slot = table[at, token // PAGE], token % PAGE
                keys[page, :, slot] = self.keys[row][:, token]
                values[page, :, slot] = self.values[row][:, token]

        def given(array: np.ndarray) -> mx.array:
            return mx.array(array).astype(shape.dtype)

        def fresh(held: list[np.ndarray]) -> mx.array:
            ends = ((held[row], self.lengths[row]) for row in rows)
            return given(np.stack([all[:, end - shape.width : end] for all, end in ends]))

        pool = given(keys), given(values)
        made = attend(
            shape,
            given(np.stack([self.queries[row] for row in rows])),
            (fresh(self.keys), fresh(self.values)),
            pool,
            mx.array(table),
            mx.array([self.lengths[row] for row in rows], dtype=mx.int32),
            mx.zeros(1, mx.int32),
            given(self.sinks) if shape.sinks else None,
        )
        mx.eval(made)
        self._check_written(rows, table, pool)
        return np.array(made.astype(mx.float32))

    def _check_written(
        self, rows: Sequence[int], table: np.ndarray, pool: tuple[mx.array, mx.array]
    ) -> None:
        """The step's own tokens are in their pages."""
        keys, values = (np.array(array.astype(mx.float32)) for array in pool)
        for at, row in enumerate(rows):
            for token in range(self.lengths[row] - self.shape.width, self.lengths[row]):
                page, slot = table[at, token // PAGE], token % PAGE
                np.testing.assert_array_equal(keys[page, :, slot], self.keys[row][:, token])
                np.testing.assert_array_equal(values[page, :, slot], self.values[row][:, token])

    def expected(self, row: int) -> np.ndarray:
        """By definition, in float64."""
        shape, length = self.shape, self.lengths[row]
        group = shape.query_heads // shape.heads
        result = np.zeros((shape.query_heads, shape.width, shape.value_dim))
        tokens = np.arange(length)
        for head in range(shape.query_heads):
            keys = self.keys[row][head // group].astype(np.float64)
            values = self.values[row][head // group].astype(np.float64)
            for at in range(shape.width):
                scores = keys @ self.queries[row][head, at].astype(np.float64) * shape.scale
                if shape.softcap:
                    scores = shape.softcap * np.tanh(scores / shape.softcap)
                place = length - shape.width + at
                seen = tokens <= place
                if shape.window:
                    seen &= tokens > place - shape.window
                weights = np.where(seen, np.exp(scores - scores.max()), 0)
                sink = np.exp(self.sinks[head] - scores.max()) if shape.sinks else 0
                result[head, at] = weights @ values / (weights.sum() + sink)
        return result


@pytest.mark.parametrize("name", one_in(2, SHAPES))
def test_every_row_is_attended_by_definition_and_alone_to_the_bit(name: str) -> None:
    """Alone, among others, in another order and in other pages. B1, B64."""
    shape = SHAPES[name]
    lengths = [max(length, shape.width) for length in LENGTHS]
    rows = Rows(shape, lengths)
    order = list(range(len(lengths)))
    together = rows.attend(order)
    close = 1e-2 if shape.dtype == mx.bfloat16 else 2e-6
    for row in order:
        np.testing.assert_allclose(together[row], rows.expected(row), atol=close, rtol=close)
        np.testing.assert_array_equal(rows.attend([row], seed=row, spare=row)[0], together[row])
    swapped = rows.attend(order[::-1], seed=7, spare=11)
    np.testing.assert_array_equal(swapped[::-1], together)


@pytest.mark.parametrize("off", [-PAGE, -1, 1])
def test_a_wrong_length_is_noticed(off: int) -> None:
    rows = Rows(PLAIN, [300])
    right = rows.attend([0])
    more = Rows(PLAIN, [300 + PAGE])
    more.queries, more.keys[0][:, :300], more.values[0][:, :300] = (
        rows.queries,
        rows.keys[0],
        rows.values[0],
    )
    more.lengths[0] = 300 + off
    assert np.abs(more.attend([0]) - right).max() > 1e-4


def test_a_wrong_page_is_noticed() -> None:
    """Two of a row's pages have changed places: sums over all of it would be the same."""
    rows = Rows(PLAIN._replace(window=40), [300])
    right = rows.attend([0])
    swapped = Rows(PLAIN._replace(window=40), [300])
    for held in (swapped.keys[0], swapped.values[0]):
        held[:, 256:272], held[:, 240:256] = held[:, 240:256].copy(), held[:, 256:272].copy()
    assert np.abs(swapped.attend([0]) - right).max() > 1e-4


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (PLAIN, None),
        (PLAIN._replace(key_dim=30), "heads of 30"),
        (PLAIN._replace(value_dim=512), "heads of 512"),
        (PLAIN._replace(dtype=mx.int8), "int8"),
        (PLAIN._replace(query_heads=5), "5 query heads"),
        (PLAIN._replace(width=9), "9 queries"),
    ],
)
def test_what_no_kernel_is_made_for_is_said(shape: AttentionShape, why: str | None) -> None:
    assert (shape.why_not or "") == "" if why is None else why in str(shape.why_not)
