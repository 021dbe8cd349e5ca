"""Gated delta layers in one kernel, token by token, where their libraries have none: on CUDA.

There both libraries take a dozen operations for a token of a layer, and mlx-vlm hundreds for a
piece of a prompt. What the kernel makes of several tokens is, to the last bit, what it makes of one
after the other: so a draft leaves what decoding would have left, and a prompt may be cut anywhere.

It is tried on the user's device, for each shape before its first use, beside the library's own
operations; where it fails or differs from them, they are used.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx

from bushel.models import kernel_preludes as preludes
from bushel.models.device import ON_CUDA, raise_device_fault

log = logging.getLogger(__name__)

_LIBRARIES = (
    "mlx_lm.models.gated_delta",
    "mlx_vlm.models.gated_delta",
    "mlx_vlm.models.qwen3_5.gated_delta",
)
# Both go on from a state by some tokens; the second has none for gates by key.
_FUNCTIONS = ("gated_delta_ops", "gated_delta_chunked")
_THREADS = 128
_WARP = 32
# How far from the operations, of the largest number that comes out: rounded, and not.
_CLOSE = (2e-2, 1e-3)

_SOURCE = Path(__file__).with_name("gated_delta.kernel")

Update = Callable[..., tuple[mx.array, ...]]


class DeltaShape(NamedTuple):
    dtype: mx.Dtype  # of queries, keys and values
    beta: mx.Dtype
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    gate_by_key: bool
    masked: bool

    @property
    def fits(self) -> bool:
        return (
            {self.dtype, self.beta} <= {*preludes.NAMES}
            and self.key_dim % _WARP == 0
            and self.value_dim % (_THREADS // _WARP) == 0
            and self.value_heads % self.key_heads == 0
        )


def install() -> None:
    """Let the libraries use it, where a model has loaded them."""
    if not ON_CUDA:
        return
    for name in _LIBRARIES:
        if (library := sys.modules.get(name)) is None:
            continue
        for function in _FUNCTIONS:
            update: Any = getattr(library, function, None)
            if update is not None and not hasattr(update, "in_a_kernel"):
                setattr(library, function, in_a_kernel(update))


def in_a_kernel(update: Update) -> Update:
    """A library's function, of which the kernel does what it can.

    more: what only the library knows of, such as states to be kept on the way; then it does it.
    """

    @wraps(update)
    def updated(
        q: mx.array,
        k: mx.array,
        v: mx.array,
        g: mx.array,
        beta: mx.array,
        state: mx.array | None = None,
        mask: mx.array | None = None,
        *more: Any,
        **named: Any,
    ) -> tuple[mx.array, ...]:
        asked = any(value is not None for value in (*more, *named.values()))
        shape = None if asked else shape_of(q, k, v, g, beta, state, mask)
        if shape is None or state is None or not _works(shape, update):
            return update(q, k, v, g, beta, state, mask, *more, **named)
        return run(shape, q, k, v, g, beta, state, mask)

    updated.in_a_kernel = True  # type: ignore[attr-defined]
    return updated


def shape_of(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array | None,
    mask: mx.array | None,
) -> DeltaShape | None:
    """None where the kernel cannot do it."""
    (key_heads, key_dim), (value_heads, value_dim) = k.shape[2:], v.shape[2:]
    sizes = key_heads, value_heads, key_dim, value_dim
    shape = DeltaShape(q.dtype, beta.dtype, *sizes, g.ndim == 4, mask is not None)
    alike = k.dtype == v.dtype == q.dtype
    floats = state is not None and g.dtype == state.dtype == mx.float32
    masks = mask is None or (mask.dtype == mx.bool_ and mask.shape == q.shape[:2])
    return shape if alike and floats and masks and shape.fits else None


def run(
    shape: DeltaShape,
    q: mx.array,
    k: mx.array,
    v: mx.array,
    g: mx.array,
    beta: mx.array,
    state: mx.array,
    mask: mx.array | None,
) -> tuple[mx.array, mx.array]:
    lines = len(q) * shape.value_heads * shape.value_dim
    y, after = _kernel(shape)(
        inputs=[q, k, v, g, beta, state] + ([] if mask is None else [mask]),
        output_shapes=[v.shape, state.shape],
        output_dtypes=[shape.dtype, mx.float32],
        grid=(lines * _WARP, 1, 1),
        threadgroup=(_THREADS, 1, 1),
    )
    return y, after


def source(shape: DeltaShape, prelude: str) -> tuple[str, str]:
    """What stands before the body, and the body."""
    constants = {
        "THREADS": _THREADS,
        "BETA": preludes.NAMES[shape.beta],
        "KEY_HEADS": shape.key_heads,
        "VALUE_HEADS": shape.value_heads,
        "KEY_DIM": shape.key_dim,
        "VALUE_DIM": shape.value_dim,
        "HELD": shape.key_dim // _WARP,
        "GATE_BY_KEY": int(shape.gate_by_key),
        "MASKED": int(shape.masked),
        "ALLOWED(at)": "allowed[at]" if shape.masked else "true",
    }
    header = preludes.header(shape.dtype, constants, prelude)
    return header, preludes.bare(_SOURCE.read_text())


@cache
def _kernel(shape: DeltaShape) -> Any:
    header, body = source(shape, preludes.prelude())
    inputs = ["q", "k", "v", "g", "beta", "state"] + ["allowed"] * shape.masked
    return preludes.made("delta", header, body, inputs, ["y", "after"])


@cache
def _works(shape: DeltaShape, update: Update) -> bool:
    given = _some(shape)
    try:
        (y, state), (their_y, their_state) = run(shape, *given), update(*given)
        last = -1 if shape.masked else None  # nobody reads it
        close = _close(y[:, :last], their_y[:, :last]) and _close(state, their_state)
    except Exception as error:
        raise_device_fault(error)
        log.warning("gated delta runs without a kernel: %s", error)
        return False
    if not close:
        log.warning("gated delta runs without a kernel: it differs from the library for %s", shape)
    return close


def _some(shape: DeltaShape) -> tuple[Any, ...]:
    """Three tokens of two rows, as a layer would have them; of those that are masked, the last."""
    chance = iter(mx.random.split(mx.random.key(0), 6))

    def drawn(*size: int) -> mx.array:
        return mx.random.normal((2, 3, *size), key=next(chance))

    def unit(drawn: mx.array) -> mx.array:
        return (drawn / mx.linalg.norm(drawn, axis=-1, keepdims=True)).astype(shape.dtype)

    q, k = (unit(drawn(shape.key_heads, shape.key_dim)) for _ in range(2))
    v = drawn(shape.value_heads, shape.value_dim).astype(shape.dtype)
    each = (shape.value_heads, *[shape.key_dim] * shape.gate_by_key)
    g, beta = mx.sigmoid(drawn(*each)), mx.sigmoid(drawn(shape.value_heads)).astype(shape.beta)
    state = drawn(shape.value_heads, shape.value_dim, shape.key_dim)[:, 0]
    mask = mx.array([[True, True, False]] * 2) if shape.masked else None
    return q, k, v, g, beta, state, mask


def _close(ours: mx.array, theirs: mx.array) -> bool:
    bound = _CLOSE[ours.dtype == mx.float32]
    ours, theirs = ours.astype(mx.float32), theirs.astype(mx.float32)
    return bool(mx.abs(ours - theirs).max() <= bound * mx.abs(theirs).max())
