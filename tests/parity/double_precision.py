"""All of a network in float64: what MLX or a library's code does in float32 alone, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import mlx.core as mx


@contextmanager
def float64() -> Iterator[None]:
    """Code that asks for float32 gets float64. On the CPU: a GPU has none."""
    with patch.object(mx, "float32", mx.float64), patch.object(mx, "gather_mm", _gather_mm):
        yield


def _gather_mm(
    a: mx.array,
    b: mx.array,
    lhs_indices: mx.array | None = None,
    rhs_indices: mx.array | None = None,
    **_: Any,
) -> mx.array:
    """MLX's own knows float32 at most."""
    rows, columns = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:])
    left = mx.arange(len(rows)).reshape(a.shape[:-2]) if lhs_indices is None else lhs_indices
    right = mx.arange(len(columns)).reshape(b.shape[:-2]) if rhs_indices is None else rhs_indices
    left, right = mx.broadcast_arrays(left, right)
    return rows[left] @ columns[right]
