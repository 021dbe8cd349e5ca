"""What stands in for MLX's functions in float64 computes the same, and to a float64's accuracy."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from .double_precision import _FAST, _PLAIN, float64

pytestmark = pytest.mark.skipif(mx.default_device() != mx.cpu, reason="only the CPU has float64")

# Makes an array of random numbers of a shape.
Numbers = Callable[..., mx.array]


def attend(n: Numbers, **said: Any) -> mx.array:
    """Four heads that share two, and fewer queries than keys."""
    q, k, v = n(2, 4, 3, 8), n(2, 2, 5, 8), n(2, 2, 5, 8)
    return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, **said)


def rope(n: Numbers, dims: int = 8, **said: Any) -> mx.array:
    how = {"traditional": False, "base": 1e4, "scale": 0.5, "offset": 7, **said}
    return mx.fast.rope(n(2, 3, 5, 8), dims, **how)


KNOWN = np.random.default_rng(1).random((2, 1, 3, 5)) < 0.7
CALLS: dict[str, list[Callable[[Numbers], mx.array]]] = {
    "exp": [lambda n: mx.exp(n(3, 4))],
    "sin": [lambda n: mx.sin(n(3, 4) * 9)],
    "cos": [lambda n: mx.cos(n(3, 4) * 9)],
    "erf": [lambda n: mx.erf(n(3, 4))],
    "logaddexp": [lambda n: mx.logaddexp(n(3, 4), n(4)), lambda n: mx.logaddexp(n(3, 4), 0)],
    "sigmoid": [lambda n: mx.sigmoid(n(3, 4))],
    "softmax": [
        lambda n: mx.softmax(n(3, 4), axis=-1, precise=True),
        lambda n: mx.softmax(n(3, 4, 2), axis=(0, 1)),
    ],
    "logsumexp": [
        lambda n: mx.logsumexp(n(3, 4)),
        lambda n: mx.logsumexp(n(3, 4), axis=0),
        lambda n: mx.logsumexp(n(3, 4), axis=-1, keepdims=True),
    ],
    "conv1d": [
        lambda n: mx.conv1d(n(2, 9, 6), n(6, 4, 1), groups=6),
        lambda n: mx.conv1d(n(2, 9, 6), n(4, 3, 3), 2, 1, 2, 2),
    ],
    "conv2d": [
        lambda n: mx.conv2d(n(2, 6, 4, 3), n(5, 2, 2, 3), 2),
        lambda n: mx.conv2d(n(2, 6, 4, 3), n(5, 3, 2, 3), (1, 2), (2, 0)),
    ],
    "conv3d": [lambda n: mx.conv3d(n(3, 2, 4, 4, 3), n(5, 2, 4, 4, 3), (2, 4, 4))],
    "gather_mm": [
        lambda n: mx.gather_mm(n(4, 1, 3), n(5, 3, 2), rhs_indices=mx.array([3, 0, 0, 4]))
    ],
    "rms_norm": [
        lambda n: mx.fast.rms_norm(n(3, 4), None, 1e-3),
        lambda n: mx.fast.rms_norm(n(3, 4), n(4), 1e-3),
    ],
    "layer_norm": [
        lambda n: mx.fast.layer_norm(n(3, 4), None, None, 1e-3),
        lambda n: mx.fast.layer_norm(n(3, 4), n(4), n(4), 1e-3),
    ],
    "rope": [
        rope,
        lambda n: rope(n, 4, traditional=True),
        lambda n: rope(n, offset=mx.array([3, 11])),
        lambda n: rope(n, base=None, freqs=mx.array([1.0, 2.0, 5.0, 9.0])),
    ],
    "scaled_dot_product_attention": [
        attend,
        lambda n: attend(n, mask="causal"),
        lambda n: attend(n, mask=mx.array(KNOWN)),
        lambda n: attend(n, mask=n(2, 4, 3, 5)),
        lambda n: attend(n, mask="causal", sinks=n(4)),
    ],
}


def numbers(dtype: mx.Dtype, moved: float = 0.0) -> Numbers:
    rng = np.random.default_rng(0)
    return lambda *shape: mx.array(rng.normal(size=shape) * (1 + moved), dtype=dtype)


def test_every_function_is_tried() -> None:
    assert CALLS.keys() == {**_PLAIN, **_FAST}.keys()


@pytest.mark.parametrize("name", CALLS)
def test_computes_what_mlx_does(name: str) -> None:
    """MLX's own in float32 is as far from it as float32 rounds."""
    for call in CALLS[name]:
        own = np.array(call(numbers(mx.float32)))
        with float64():
            wide = np.array(call(numbers(mx.float64)))
        assert wide.dtype == np.float64
        assert wide.shape == own.shape
        np.testing.assert_allclose(wide, own, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CALLS)
def test_rounds_as_float64_does(name: str) -> None:
    """It is straight from one millionth to the next; a float32's has steps of 1e-8 and more."""
    for call in CALLS[name]:
        with float64():
            one, two, three = (np.array(call(numbers(mx.float64, n * 1e-6))) for n in range(3))
        assert np.abs(one - two).max() > 1e-8
        assert np.abs(one - 2 * two + three).max() < 1e-9
