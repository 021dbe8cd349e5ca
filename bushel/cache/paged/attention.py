"""Attention to keys and values that lie in pages, in two launches for all rows of a step.

    partition   one block per row, head and 256 tokens of the row: writes what of the step's own
                keys and values is among them, then scores, weights, their sum
    merge       one block per row and query head: the partitions of the row, in order

The partitions of a row follow from its own length, so that its result is the same, to the bit,
alone and in any batch, order and layout of pages. `attention.kernel` is one text for CUDA, Metal
and, in tests, a CPU (`kernel_preludes`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx

from bushel.cache.paged.page_kernels import PAGE
from bushel.models import kernel_preludes as preludes

PARTITION = 256  # tokens; with another number, other bits
MOST_QUERIES = 8  # in a row, for one step: a draft and the token before it
_THREADS = 128
_LANES = 8  # threads for one key
_TILE = 8  # queries that are looked at together

_SOURCE = Path(__file__).with_name("attention.kernel")


class AttentionShape(NamedTuple):
    """All that a kernel is compiled for; of the width, whether it is more than one."""

    dtype: mx.Dtype
    query_heads: int
    heads: int
    key_dim: int
    value_dim: int
    width: int  # queries of a row
    scale: float
    window: int = 0  # tokens that a query sees, itself among them; 0: all
    softcap: float = 0.0
    sinks: bool = False

    @property
    def why_not(self) -> str | None:
        """Why there is no kernel for it, if there is none."""
        if self.dtype not in preludes.NAMES:
            return f"keys of {self.dtype}"
        if self.query_heads % self.heads:
            return f"{self.query_heads} query heads for {self.heads} of keys"
        piece = 16 // self.dtype.size
        for dim in (self.key_dim, self.value_dim):
            if dim % piece or not 8 <= dim <= 256:
                return f"heads of {dim} numbers"
        return None if self.width <= MOST_QUERIES else f"{self.width} queries in a row"


def source(shape: AttentionShape, final: bool, prelude: str) -> tuple[str, str, str]:
    """What stands before both bodies, and the bodies of partition and merge."""
    piece, group = 16 // shape.dtype.size, shape.query_heads // shape.heads
    constants = {
        "PAGE": PAGE,
        "PARTITION": PARTITION,
        "THREADS": _THREADS,
        "LANES": _LANES,
        "TILE": min(group, _TILE) if shape.width == 1 else _TILE,
        "GROUPS": min(_THREADS // (shape.value_dim // piece), 16),
        "QUERY_HEADS": shape.query_heads,
        "HEADS": shape.heads,
        "KEY_DIM": shape.key_dim,
        "VALUE_DIM": shape.value_dim,
        "WIDE": int(shape.width > 1),
        "GROUP": group,
        "SCALE": f"{shape.scale!r}f",
        "WINDOW": shape.window,
        "SOFTCAP": int(shape.softcap > 0),
        "CAP": f"{float(shape.softcap or 1)!r}f",
        "SINKS": int(shape.sinks),
        "FINAL": int(final),
        "NOTHING": "-3.0e38f",
    }
    _, partition, merge = _SOURCE.read_text().split("// ---- ")
    bodies = [body.split("\nconst int parts", 1)[1] for body in (partition, merge)]
    partition, merge = (preludes.bare("const int parts" + body) for body in bodies)
    return preludes.header(shape.dtype, constants, prelude), partition, merge


class _Kernels(NamedTuple):
    partition: Any
    merge: Any


@lru_cache(maxsize=4096)
def _kernels(shape: AttentionShape, final: bool) -> _Kernels:
    header, partition, merge = source(shape, final, preludes.prelude())
    fresh = ["queries", "fresh_keys", "fresh_values"]
    sinks = ["sinks"] * shape.sinks
    return _Kernels(
        preludes.made(
            "attend",
            header,
            partition,
            [*fresh, "keys", "values", "table", "lengths", "after"],
            ["attended"] if final else ["accumulated", "measures"],
        ),
        preludes.made(
            "merge",
            header,
            merge,
            ["accumulated", "measures", "table", "lengths", *sinks],
            ["attended"],
        ),
    )


class _Launch(NamedTuple):
    """Of all rows of a step: asked for by every layer, so it is made once for many steps."""

    partition: Callable[..., list[mx.array]]
    merge: Callable[..., list[mx.array]] | None


@lru_cache(maxsize=4096)
def _launch(shape: AttentionShape, rows: int, parts: int) -> _Launch:
    final = parts == 1 and not shape.sinks
    kernels = _kernels(shape._replace(width=min(shape.width, 2)), final)
    threads = (_THREADS, 1, 1)
    result = (rows, shape.query_heads, shape.width, shape.value_dim)
    measured = [(*result[:3], parts, shape.value_dim), (*result[:3], parts, 2)]
    partition = partial(
        kernels.partition,
        grid=(rows * shape.heads * parts * _THREADS, 1, 1),
        threadgroup=threads,
        output_shapes=[result] if final else measured,
        output_dtypes=[shape.dtype] if final else [mx.float32, mx.float32],
    )
    merge = partial(
        kernels.merge,
        grid=(rows * shape.query_heads * shape.width * _THREADS, 1, 1),
        threadgroup=threads,
        output_shapes=[result],
        output_dtypes=[shape.dtype],
    )
    return _Launch(partition, None if final else merge)


def attend(
    shape: AttentionShape,
    queries: mx.array,
    fresh: tuple[mx.array, mx.array],
    pool: tuple[mx.array, mx.array],
    table: mx.array,
    lengths: mx.array,
    after: mx.array,
    sinks: mx.array | None = None,
) -> mx.array:
    """[B, query heads, width, value dim]; see `attention.kernel` for what it is given.

    after: what was made by the last kernel that wrote to the pool.
    """
    rows, pages = table.shape
    launch = _launch(shape, rows, pages * PAGE // PARTITION)
    made = launch.partition(inputs=[queries, *fresh, *pool, table, lengths, after])
    if launch.merge is not None:
        made = launch.merge(inputs=[*made, table, lengths, *([] if sinks is None else [sinks])])
    return made[0]
