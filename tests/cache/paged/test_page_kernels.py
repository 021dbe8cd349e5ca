"""Tokens into pages and out of them: what was put there, and nothing beside it."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from bushel.cache.paged.page_kernels import PAGE, PageShape, gather, put

SHAPES = {
    "plain": PageShape(mx.float32, 2, 64, 64),
    "one head": PageShape(mx.float32, 1, 8, 8),
    "keys unlike values": PageShape(mx.float32, 3, 96, 64),
    "bfloat16": PageShape(mx.bfloat16, 2, 64, 64),
}


pytestmark = pytest.mark.usefixtures("kernels_here")


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("place", "tokens"), [(0, 1), (0, 3 * PAGE), (5, 40), (15, 2), (3, 13)])
def test_what_was_put_is_there_and_nothing_else_has_changed(
    name: str, place: int, tokens: int
) -> None:
    """A neighbour's tokens stay what they were. B1."""
    shape, rng = SHAPES[name], np.random.default_rng(tokens)
    pages = rng.permutation(7)[: -(-(place + tokens) // PAGE)]

    def some(*size: int) -> mx.array:
        return mx.array(rng.normal(size=size).astype(np.float32)).astype(shape.dtype)

    sizes = (shape.key_dim, shape.value_dim)
    pool = tuple(some(7, shape.heads, PAGE, size) for size in sizes)
    fresh = tuple(some(1, shape.heads, tokens, size) for size in sizes)
    mx.eval(pool, fresh)
    expected = [np.array(array.astype(mx.float32)) for array in pool]
    for array, new in zip(expected, fresh, strict=True):
        for token in range(tokens):
            page, slot = pages[(place + token) // PAGE], (place + token) % PAGE
            array[page, :, slot] = np.array(new.astype(mx.float32))[0, :, token]
    table = mx.array(pages.astype(np.int32))
    written = put(shape, pool, table, place, fresh, mx.zeros(8, shape.dtype))  # type: ignore[arg-type]
    read = gather(shape, pool, table, place, tokens, written)  # type: ignore[arg-type]
    mx.eval(read)
    for array, right in zip(pool, expected, strict=True):
        np.testing.assert_array_equal(np.array(array.astype(mx.float32)), right)
    for array, new in zip(read, fresh, strict=True):
        np.testing.assert_array_equal(
            np.array(array.astype(mx.float32)), np.array(new.astype(mx.float32))
        )
