"""Blocks of a sparse attention, counted from each row's own first token and not from its padding.

blocks of four tokens, of rows that end together

columns   0 1 2 3 4 5 6 7 8 9
row 0     a b c d|e f g h|i j      padding 0
row 1     . . . a b c d|e f g      padding 3

Scores move, keys stay where they are: what is chosen by block comes back as columns.
"""

from __future__ import annotations

import mlx.core as mx


def in_blocks(scores: mx.array, padding: mx.array, size: int) -> mx.array:
    """[B, H, T, columns] as [B, H, T, blocks, size]; minus infinity where a row has no token."""
    columns = scores.shape[-1]
    blocks = -(-columns // size)
    places = padding[:, None, None, None] + mx.arange(blocks * size)
    moved = _along(scores, mx.minimum(places, columns - 1))
    return mx.where(places < columns, moved, -mx.inf).reshape(*scores.shape[:-1], blocks, size)


def best(scores: mx.array, count: int) -> mx.array:
    """Which `count` blocks of [..., blocks] have the highest scores."""
    return mx.argpartition(-scores, kth=count - 1, axis=-1)[..., :count].astype(mx.int32)


def local(here: mx.array, blocks: int, count: int) -> mx.array:
    """True for a token's own block and those before it, `count` in all. here: [..., 1]."""
    each = mx.arange(blocks)
    return (each <= here) & (each > here - count)


def as_columns(chosen: mx.array, padding: mx.array, size: int, columns: int) -> mx.array:
    """True for the columns of chosen blocks, padding included; chosen: [B, H, T, count], of which
    numbers that no block has stand for none.
    """
    block = (mx.arange(columns) - padding[:, None, None, None]) // size
    blocks = -(-columns // size)
    taken = mx.any(chosen[..., None] == mx.arange(blocks), axis=-2)
    return _along(taken, mx.maximum(block, 0))


def _along(array: mx.array, places: mx.array) -> mx.array:
    """Of the last axis the entries at these places, [B, 1, 1, P]."""
    shape = (*array.shape[:-1], places.shape[-1])
    return mx.take_along_axis(array, mx.broadcast_to(places, shape), axis=-1)
