"""Multi-head latent attention (MLA): the absorbed form for a few query tokens too, not just one.

A layer caches a latent of each token, from which every head's key and value can be projected:

    absorbed   (q W) attends to latents, then W'    W and W' are applied to the queries' side
    expanded   q attends to (latents W, latents W')  keys and values of all tokens are projected

The libraries use the absorbed form for a single query token only, so a pass that verifies two
drafts after 4,000 tokens projected 4,000 keys and values in every layer. Which form is less work
follows from the shapes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

_ATTENTION = "scaled_dot_product_attention"
# Those that project keys and values just before they attend. mlx-vlm's others choose the form.
_MODULES = (
    "mlx_lm.models.bailing_hybrid",
    "mlx_lm.models.bailing_moe_v3",
    "mlx_lm.models.deepseek_v3",
    "mlx_lm.models.deepseek_v32",
    "mlx_lm.models.glm4_moe_lite",
    "mlx_lm.models.kimi_k3",
    "mlx_lm.models.kimi_linear",
    "mlx_lm.models.longcat_flash",
    "mlx_vlm.models.hy_v4.language",
)


class _LazyProjection:
    """Keys or values: what `linear` projects latents to, once somebody asks for it."""

    __slots__ = ("latents", "linear", "transpose")

    def __init__(self, linear: _AbsorbableLinear, latents: mx.array, transpose: bool):
        self.linear, self.latents, self.transpose = linear, latents, transpose

    def array(self) -> mx.array:
        return self.linear.make(self.latents, self.transpose)


class _AbsorbableLinear:
    """Mixed into a class of the library: a matrix per head, from latents to its keys or values."""

    def __call__(self, x: mx.array, transpose: bool = True) -> mx.array | _LazyProjection:
        if x.shape[1] == 1:  # latents: heads share them
            return _LazyProjection(self, x, transpose)
        return self.make(x, transpose)

    def make(self, x: mx.array, transpose: bool = True) -> mx.array:
        made: mx.array = super().__call__(x, transpose)  # type: ignore[misc]
        return made


def install(network: Any) -> None:
    for attention in _latent(network):
        module = type(attention).__module__
        if module not in _MODULES or _heads(attention) == 1:
            continue
        for name in ("embed_q", "unembed_out"):
            linear = getattr(attention, name)
            if not isinstance(linear, _AbsorbableLinear):
                kind = type(linear)
                linear.__class__ = type(kind.__name__, (_AbsorbableLinear, kind), {})
        library = sys.modules[module]
        attend: Any = getattr(library, _ATTENTION)
        if not hasattr(attend, "absorbed"):
            setattr(library, _ATTENTION, _cheaper(attend))


def expanded_token(network: Any) -> int:
    """Bytes of a token's keys and values of all heads in one layer, which a prompt's chunk projects
    and then drops; 0 where attention is not latent.
    """
    return max(map(_expanded, _latent(network)), default=0)


def _latent(network: Any) -> Iterator[Any]:
    for _, module in network.named_modules():
        if hasattr(module, "embed_q") and hasattr(module, "unembed_out"):
            yield module


def _expanded(attention: Any) -> int:
    leaves: Any = tree_flatten(attention.parameters())
    itemsize: int = max(
        leaf.itemsize for _, leaf in leaves if mx.issubdtype(leaf.dtype, mx.floating)
    )
    return _heads(attention) * sum(_head(attention)[1:]) * itemsize


def _heads(attention: Any) -> int:
    heads: int = attention.embed_q.weight.shape[0]
    return heads


def _head(attention: Any) -> tuple[int, int, int]:
    """How wide a latent is, and a head's key and value."""
    keys, values = attention.embed_q, attention.unembed_out
    groups = keys.scales.shape[-1] * keys.group_size if "scales" in keys else keys.weight.shape[2]
    return keys.weight.shape[1], groups, values.weight.shape[1]


def _cheaper(attend: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def attention(queries: Any, keys: Any, values: Any, *more: Any, **named: Any) -> mx.array:
        if type(keys) is not _LazyProjection:
            return attend(queries, keys, values, *more, **named)
        latents = keys.latents
        if not _absorbed_is_cheaper(queries.shape, latents.shape, values.linear.weight.shape[1]):
            return attend(queries, keys.array(), values.array(), *more, **named)
        queries = keys.linear.make(queries)
        return values.linear.make(attend(queries, latents, latents, *more, **named))

    attention.absorbed = True  # type: ignore[attr-defined]
    return attention


def _absorbed_is_cheaper(queries: Sequence[int], latents: Sequence[int], value: int) -> bool:
    """Whether the absorbed form is less work, by multiplications of a head."""
    (new, key), (context, latent) = queries[2:], latents[2:]
    absorbed = new * latent * (key + value) + 2 * new * context * latent
    expanded = context * latent * (key + value) + new * context * (key + value)
    return absorbed < expanded
