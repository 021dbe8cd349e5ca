"""Moves tokens of a row into its pages, in place, and out of them: on a GPU."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx

from bushel.models import kernel_preludes as preludes

PAGE = 16  # tokens
_THREADS = 256

_SOURCE = Path(__file__).with_name("pages.kernel")


class PageShape(NamedTuple):
    """Of one layer's keys and values."""

    dtype: mx.Dtype
    heads: int
    key_dim: int
    value_dim: int

    @property
    def pieces(self) -> tuple[int, int]:
        """Of a key and of a value: what one thread moves."""
        numbers = 16 // self.dtype.size
        return self.key_dim // numbers, self.value_dim // numbers

    @property
    def nbytes(self) -> int:
        """Of a page."""
        return PAGE * self.heads * (self.key_dim + self.value_dim) * self.dtype.size


class PageKernels(NamedTuple):
    put: Any
    gather: Any


def source(shape: PageShape, prelude: str) -> tuple[str, str, str]:
    """What stands before both bodies, and the bodies of put and gather."""
    keys, values = shape.pieces
    constants = {
        "PAGE": PAGE,
        "THREADS": _THREADS,
        "HEADS": shape.heads,
        "KEY_DIM": shape.key_dim,
        "VALUE_DIM": shape.value_dim,
        "KEY_PIECES": keys,
        "VALUE_PIECES": values,
    }
    parts = _SOURCE.read_text().split("// ---- ")
    where, put, gather = ("// " + part for part in parts[1:])
    header = preludes.header(shape.dtype, constants, prelude)
    return header, preludes.bare(where + put), preludes.bare(where + gather)


@cache
def _kernels(shape: PageShape) -> PageKernels:
    header, put, gather = source(shape, preludes.prelude())
    pool = ["keys", "values", "table", "span", "after"]
    return PageKernels(
        preludes.made("put", header, put, [*pool, "fresh_keys", "fresh_values"], ["written"]),
        preludes.made("gather", header, gather, pool, ["gathered_keys", "gathered_values"]),
    )


def put(
    shape: PageShape,
    pool: tuple[mx.array, mx.array],
    pages: mx.array,
    place: int,
    fresh: tuple[mx.array, mx.array],
    after: mx.array,
) -> mx.array:
    """Writes tokens [1, heads, T, D] into pages, from a place in the first one on, in place.
    Returns something to wait for.
    """
    tokens = fresh[0].shape[2]
    written: list[mx.array] = _kernels(shape).put(
        inputs=[*pool, pages, mx.array([place, tokens], dtype=mx.int32), after, *fresh],
        output_shapes=[preludes.AFTER],
        output_dtypes=[shape.dtype],
        **_launch(shape, tokens),
    )
    return written[0]


def gather(
    shape: PageShape,
    pool: tuple[mx.array, mx.array],
    pages: mx.array,
    place: int,
    tokens: int,
    after: mx.array,
) -> tuple[mx.array, mx.array]:
    """Tokens from a place in the first of these pages on: [1, heads, T, D]."""
    sizes = [(1, shape.heads, tokens, dim) for dim in (shape.key_dim, shape.value_dim)]
    keys, values = _kernels(shape).gather(
        inputs=[*pool, pages, mx.array([place, tokens], dtype=mx.int32), after],
        output_shapes=sizes,
        output_dtypes=[shape.dtype] * 2,
        **_launch(shape, tokens),
    )
    return keys, values


def _launch(shape: PageShape, tokens: int) -> dict[str, Any]:
    moved = shape.heads * tokens * sum(shape.pieces)
    blocks = -(-moved // _THREADS)
    return {"grid": (blocks * _THREADS, 1, 1), "threadgroup": (_THREADS, 1, 1)}
