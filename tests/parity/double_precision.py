"""All of a network in float64: what MLX or a library's code does in float32 alone, too.

MLX's products, sums, roots, powers and logarithms of float64 are float64's. Its exponentials, its
sines, its convolutions and most of `mx.fast` return float64 of a float32's accuracy, and a
convolution in float32 adds in an order that depends on how many rows there are.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import numpy as np

Axes = int | Sequence[int] | None


@contextmanager
def float64() -> Iterator[None]:
    """Code that asks for float32 gets float64. On the CPU: a GPU has none."""
    assert mx.float32 != mx.float64, "not within itself: compiling would be on again"
    with ExitStack() as stack:
        stack.enter_context(patch.object(mx, "float32", mx.float64))
        for owner, functions in ((mx, _PLAIN), (mx.fast, _FAST)):
            for name, function in functions.items():
                stack.enter_context(patch.object(owner, name, function))
        # What is compiled keeps the functions that it was compiled with, and can not call numpy.
        stack.callback(mx.enable_compile)
        mx.disable_compile()
        yield


def _by_numpy(function: Callable[..., np.ndarray]) -> Callable[..., mx.array]:
    """Of arrays, or of arrays and numbers."""

    def computed(*operands: Any, **_: Any) -> mx.array:
        return _array(function(*map(_numbers, operands)))

    return computed


def _array(numbers: np.ndarray) -> mx.array:
    return mx.array(numbers, dtype=mx.float64)


def _numbers(operand: Any) -> np.ndarray:
    return np.array(mx.array(operand).astype(mx.float64))


_exp = _by_numpy(np.exp)


def _sigmoid(x: mx.array, **_: Any) -> mx.array:
    return (1 + mx.tanh(x / 2)) / 2


def _softmax(x: mx.array, axis: Axes = None, **_: Any) -> mx.array:
    weights = _exp(x - x.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def _logsumexp(x: mx.array, axis: Axes = None, keepdims: bool = False, **_: Any) -> mx.array:
    most = x.max(axis=axis, keepdims=True)
    total = mx.log(_exp(x - most).sum(axis=axis, keepdims=True)) + most
    return total if keepdims else total.squeeze(axis)


def _convolution(
    x: mx.array,
    weight: mx.array,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    **_: Any,
) -> mx.array:
    """In any number of dimensions: x [N, ..., C], weight [O, ..., C / groups]."""
    sizes = weight.shape[1:-1]
    axes = (*range(1, 1 + len(sizes)),)
    steps, edges, gaps = (np.broadcast_to(it, len(sizes)) for it in (stride, padding, dilation))
    padded = np.pad(_numbers(x), [(0, 0), *((it, it) for it in edges), (0, 0)])
    reach = (np.array(sizes) - 1) * gaps + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)  # [N, ..., C, *reach]
    windows = windows[:, *(slice(None, None, it) for it in (*steps, 1, *gaps))]
    places = windows.shape[: 1 + len(sizes)]
    rows = windows.reshape(math.prod(places), groups, -1).swapaxes(0, 1)
    filters = np.moveaxis(_numbers(weight), -1, 1).reshape(groups, len(weight) // groups, -1)
    return _array((rows @ filters.swapaxes(1, 2)).swapaxes(0, 1).reshape(*places, -1))


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


def _rms_norm(x: mx.array, weight: mx.array | None, eps: float, **_: Any) -> mx.array:
    scaled = x * mx.rsqrt(mx.square(x).mean(axis=-1, keepdims=True) + eps)
    return scaled if weight is None else scaled * weight


def _layer_norm(
    x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float, **_: Any
) -> mx.array:
    scaled = _rms_norm(x - x.mean(axis=-1, keepdims=True), weight, eps)
    return scaled if bias is None else scaled + bias


def _rope(
    x: mx.array,
    dims: int,
    *,
    traditional: bool,
    base: float | None,
    scale: float,
    offset: int | mx.array,
    freqs: mx.array | None = None,
    **_: Any,
) -> mx.array:
    """x [B, ..., T, D]; offset: one, or one of each row."""
    half = dims // 2
    lengths = (base or 0) ** (np.arange(half) / half) if freqs is None else _numbers(freqs)
    offsets = _numbers(offset).reshape(-1, *[1] * (x.ndim - 2))
    angles = (offsets + np.arange(x.shape[-2]))[..., None] * scale / lengths
    cos, sin = _array(np.cos(angles)), _array(np.sin(angles))
    axis = -1 if traditional else -2
    pairs = x[..., :dims].reshape(*x.shape[:-1], *((half, 2) if traditional else (2, half)))
    one, two = (part.squeeze(axis) for part in mx.split(pairs, 2, axis=axis))
    turned = mx.stack([one * cos - two * sin, one * sin + two * cos], axis=axis)
    return mx.concatenate([turned.flatten(-2), x[..., dims:]], axis=-1)


def _attention(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    **_: Any,
) -> mx.array:
    """q [B, heads, Tq, D]; k and v [B, as many heads or fewer, Tk, D]."""
    k, v = (mx.repeat(it, q.shape[1] // it.shape[1], axis=1) for it in (k, v))
    scores = (q * scale) @ k.swapaxes(-1, -2)
    if isinstance(mask, str):
        queries, keys = scores.shape[-2:]
        mask = mx.arange(keys) <= mx.arange(keys - queries, keys)[:, None]
    if mask is not None and mask.dtype == mx.bool_:
        scores = mx.where(mask, scores, mx.finfo(mx.float64).min)
    elif mask is not None:
        scores = scores + mask
    if sinks is None:
        return _softmax(scores, -1) @ v
    beside = mx.broadcast_to(sinks[:, None, None], (*scores.shape[:-1], 1))
    return _softmax(mx.concatenate([beside, scores], axis=-1), -1)[..., 1:] @ v


_PLAIN = {
    "exp": _exp,
    "sin": _by_numpy(np.sin),
    "cos": _by_numpy(np.cos),
    "erf": _by_numpy(np.vectorize(math.erf, otypes=[np.float64])),
    "logaddexp": _by_numpy(np.logaddexp),
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    "gather_mm": _gather_mm,
}
_FAST = {
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "rope": _rope,
    "scaled_dot_product_attention": _attention,
}
