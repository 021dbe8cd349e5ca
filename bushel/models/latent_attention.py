"""Latent attention (MLA) by few tokens: asked of the latents, as for one token.

A layer keeps a latent of each token, from which every head's key and value can be made:

    alone:   q W | latents | W'      two small products for the token that asks
    others:  q   | latents W, latents W'     keys and values of all that came before

The libraries go the first way for one token only, so a pass that verifies two drafts after 4,000
tokens made 4,000 keys and values in every layer. Which way is less work follows from the numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

_ATTENTION = "scaled_dot_product_attention"
# Those that make keys and values just before they attend to them. mlx-vlm's others choose.
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


class _Made:
    """What `linear` makes of latents, once somebody asks for it."""

    __slots__ = ("latents", "linear", "transpose")

    def __init__(self, linear: _OfLatents, latents: mx.array, transpose: bool):
        self.linear, self.latents, self.transpose = linear, latents, transpose

    def array(self) -> mx.array:
        return self.linear.make(self.latents, self.transpose)


class _OfLatents:
    """Beside a class of the library: a matrix for each head, between latents and what it has."""

    def __call__(self, x: mx.array, transpose: bool = True) -> mx.array | _Made:
        if x.shape[1] == 1:  # latents: heads share them
            return _Made(self, x, transpose)
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
            if not isinstance(linear, _OfLatents):
                kind = type(linear)
                linear.__class__ = type(kind.__name__, (_OfLatents, kind), {})
        library = sys.modules[module]
        attend: Any = getattr(library, _ATTENTION)
        if not hasattr(attend, "of_latents"):
            setattr(library, _ATTENTION, _chosen(attend))


def expanded_token(network: Any) -> int:
    """Bytes of a token's keys and values of all heads in one layer, which a prompt's chunk makes
    for a while; 0 where attention is not latent.
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


def _chosen(attend: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def attention(queries: Any, keys: Any, values: Any, *more: Any, **named: Any) -> mx.array:
        if type(keys) is not _Made:
            return attend(queries, keys, values, *more, **named)
        latents = keys.latents
        if not _less(queries.shape, latents.shape, values.linear.weight.shape[1]):
            return attend(queries, keys.array(), values.array(), *more, **named)
        queries = keys.linear.make(queries)
        return values.linear.make(attend(queries, latents, latents, *more, **named))

    attention.of_latents = True  # type: ignore[attr-defined]
    return attention


def _less(queries: Sequence[int], latents: Sequence[int], value: int) -> bool:
    """Whether it is less work, by multiplications of a head, to ask the latents."""
    (asking, key), (seen, latent) = queries[2:], latents[2:]
    of_latents = asking * latent * (key + value) + 2 * asking * seen * latent
    expanded = seen * latent * (key + value) + asking * seen * (key + value)
    return of_latents < expanded
