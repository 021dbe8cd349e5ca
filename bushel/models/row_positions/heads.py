"""Between a layer's width and its heads."""

from __future__ import annotations

import mlx.core as mx


def split_heads(x: mx.array, heads: int) -> mx.array:
    """[B, T, heads x D] to [B, heads, T, D]."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def join_heads(x: mx.array) -> mx.array:
    """[B, heads, T, D] to [B, T, heads x D]."""
    rows, _, tokens, _ = x.shape
    return x.transpose(0, 2, 1, 3).reshape(rows, tokens, -1)
