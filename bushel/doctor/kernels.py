"""Kernels that models are made of, each held to numpy: a wrong one makes wrong answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import mlx.core as mx
import numpy as np

from bushel.doctor.finding import Finding

# Of the largest number: float32 may be TF32, which keeps ten bits as float16 does.
_FLOAT32, _FLOAT16, _BFLOAT16 = 5e-3, 5e-3, 3e-2
_EXACT = 0.0
_ADVICE = (
    "Answers cannot be trusted on this device. Update macOS or the driver, and MLX; until then "
    "BUSHEL_DEVICE=cpu computes elsewhere. Please report this."
)

Result = tuple[mx.array, np.ndarray, float]  # as computed, as it should be, how far apart


def apart(one: np.ndarray, two: np.ndarray) -> float:
    """The largest difference, measured by the largest number; not a number is far apart."""
    difference = np.abs(np.asarray(one, np.float64) - np.asarray(two, np.float64)).max()
    scaled = float(difference / max(float(np.abs(two).max()), 1e-30))
    return scaled if np.isfinite(scaled) else float("inf")


def _numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def _product(rows: int, dtype: mx.Dtype, bound: float) -> Result:
    one, two = (mx.array(it).astype(dtype) for it in (_numbers(rows, 256), _numbers(256, 512)))
    wanted = _wide(one) @ _wide(two)
    return mx.matmul(one, two), wanted, bound


def _wide(array: mx.array) -> np.ndarray:
    return np.array(array.astype(mx.float32)).astype(np.float64)


def _quantized(rows: int) -> Result:
    weights, inputs = mx.array(_numbers(512, 256)), mx.array(_numbers(rows, 256))
    packed, scales, biases = mx.quantize(weights, group_size=64, bits=4)
    nibbles = np.array(packed)[..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
    groups = nibbles.reshape(512, 4, 64).astype(np.float64)
    plain = groups * _wide(scales)[..., None] + _wide(biases)[..., None]
    product = mx.quantized_matmul(inputs, packed, scales, biases, True, 64, 4)
    return product, _wide(inputs) @ plain.reshape(512, 256).T, _FLOAT32


def _attention(queries: int, keys: int) -> Result:
    """Four heads of queries over two of keys, each query up to its own place."""
    query, key, value = (
        _numbers(1, heads, length, 64, seed=seed)
        for seed, (heads, length) in enumerate(((4, queries), (2, keys), (2, keys)))
    )
    arrays = (mx.array(it) for it in (query, key, value))
    mask = "causal" if queries > 1 else None
    computed = mx.fast.scaled_dot_product_attention(*arrays, scale=0.125, mask=mask)
    wide = [it.astype(np.float64) for it in (query, key.repeat(2, 1), value.repeat(2, 1))]
    scores = wide[0] @ wide[1].swapaxes(-1, -2) * 0.125
    late = np.arange(keys)[None] > np.arange(keys - queries, keys)[:, None]
    scores = np.where(late, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return computed, weights / weights.sum(-1, keepdims=True) @ wide[2], _FLOAT32


def _norm() -> Result:
    rows, scale = _numbers(8, 1024), _numbers(1024)
    wide = rows.astype(np.float64)
    wanted = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * scale
    return mx.fast.rms_norm(mx.array(rows), mx.array(scale), 1e-5), wanted, _FLOAT32


def _softmax() -> Result:
    rows = _numbers(4, 32_000)
    weights = np.exp(rows.astype(np.float64))
    return mx.softmax(mx.array(rows), axis=-1), weights / weights.sum(-1, keepdims=True), _FLOAT32


def _argmax() -> Result:
    rows = _numbers(8, 128_256)
    return mx.argmax(mx.array(rows), axis=-1), rows.argmax(-1), _EXACT


def _sort() -> Result:
    """Longer than one block of a GPU's sort."""
    rows = _numbers(4, 10_000)
    return mx.sort(mx.array(rows), axis=-1), np.sort(rows, -1), _EXACT


def _gather() -> Result:
    rows = _numbers(1000, 64)
    places = np.random.default_rng(1).integers(0, 1000, 300)
    return mx.take(mx.array(rows), mx.array(places), axis=0), rows[places], _EXACT


def _fused() -> Result:
    """On a CPU this needs a compiler (g++), on a GPU the device's own."""
    rows = _numbers(64, 1000)
    gate = mx.compile(lambda it: it * mx.sigmoid(it) + 1)
    wide = rows.astype(np.float64)
    return gate(mx.array(rows)), wide / (1 + np.exp(-wide)) + 1, _FLOAT32


KERNELS: Mapping[str, Callable[[], Result]] = {
    "matmul float32": lambda: _product(64, mx.float32, _FLOAT32),
    "matmul float32, one row": lambda: _product(1, mx.float32, _FLOAT32),
    "matmul bfloat16": lambda: _product(64, mx.bfloat16, _BFLOAT16),
    "matmul float16": lambda: _product(64, mx.float16, _FLOAT16),
    "matmul of 4 bits": lambda: _quantized(64),
    "matmul of 4 bits, one row": lambda: _quantized(1),
    "attention of a prompt": lambda: _attention(48, 80),
    "attention of a step": lambda: _attention(1, 80),
    "rms_norm": _norm,
    "softmax": _softmax,
    "argmax": _argmax,
    "sort": _sort,
    "gather": _gather,
    "fused operations": _fused,
}


def correct() -> Iterator[Finding]:
    """One line for all that are right, and one for each that is not."""
    right = []
    for name, kernel in KERNELS.items():
        try:
            computed, wanted, bound = kernel()
            error = apart(np.array(computed.astype(mx.float32)), wanted)
        except Exception as failure:
            words = f"{type(failure).__name__}: {' '.join(str(failure).split())}"
            yield Finding("wrong", name, words, _ADVICE)
            continue
        if error <= bound:
            right.append(name)
        else:
            yield Finding("wrong", name, f"{error:.1e} off, where {bound:g} is rounding", _ADVICE)
    if right:
        yield Finding("ok", "kernels", f"equal to numpy: {'; '.join(right)}")
