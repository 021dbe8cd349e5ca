"""Drawing tokens where more than temperature, top_k, top_p and min_p decides what may be drawn.

For rows that ask for typical_p, top_n_sigma or XTC alone: they are in groups of their own. In this
order, each over what the one before it has left:

    temperature, top_n_sigma, top_k and min_p, typical_p, top_p, XTC

Settings are as in `draw`. Not compiled: nobody should wait for a compiler at their first use.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx

from bushel.engine.sampling import draw


def shaped_narrow(x: mx.array, u: mx.array, *settings: Any) -> mx.array:
    """For 1 < top_k <= CANDIDATES: from each row's best tokens alone."""
    return draw.from_best(x, partial(_pick, _deviation(x), u, *settings))


def shaped(x: mx.array, u: mx.array, *settings: Any) -> mx.array:
    """Any settings, by sorting the whole row."""
    return draw.from_all(x, partial(_pick, _deviation(x), u, *settings))


def _deviation(x: mx.array) -> mx.array:
    """[R, 1, 1] of logits [R, V], apart from tokens that were ruled out."""
    x = x.astype(mx.float32)[:, None]
    possible = x > draw.RULED_OUT / 2
    count = possible.sum(axis=2, keepdims=True)
    mean = mx.where(possible, x, 0).sum(axis=2, keepdims=True) / count
    return mx.sqrt(mx.where(possible, x - mean, 0).square().sum(axis=2, keepdims=True) / count)


def _pick(
    deviation: mx.array, u: mx.array, scale: mx.array, least: mx.array, top_k: mx.array,
    top_p: mx.array, sigma: mx.array, typical_p: mx.array | None, probability: mx.array,
    threshold: mx.array, values: mx.array,
) -> mx.array:  # fmt: skip
    """Sample a place [R, 1, 1] among logits [R, 1, N] in falling order."""
    values = values.astype(mx.float32)
    values = (values - values[:, :, :1]) * scale
    numbers = draw.place_numbers(values.shape[2])
    near = (sigma == 0) | (values >= -sigma * deviation * scale)
    weights = mx.where((numbers < top_k) & (values >= least) & near, mx.exp(values), 0)
    if typical_p is not None:
        weights = _typical(values, weights, typical_p)
    before = mx.cumsum(weights, axis=2) - weights
    likeliest = numbers == mx.argmax(weights, axis=2, keepdims=True)  # stays, at top_p 0
    total = weights.sum(axis=2, keepdims=True)
    weights = mx.where(likeliest | (before < top_p * total), weights, 0)
    weights = _without_top_choices(weights, u[:, 1:, :1] < probability, threshold)
    sums = mx.where(weights > 0, mx.cumsum(weights, axis=2), 0)
    return draw.first_above(sums, u[:, :1, :1], axis=2)


def _typical(values: mx.array, weights: mx.array, typical_p: mx.array) -> mx.array:
    """The tokens whose surprise is nearest to what is expected of this row's next one."""
    total = weights.sum(axis=2, keepdims=True)
    shares = weights / total
    surprises = mx.log(total) - values
    kept = weights > 0
    expected = mx.where(kept, shares * surprises, 0).sum(axis=2, keepdims=True)
    order = mx.argsort(mx.where(kept, mx.abs(surprises - expected), mx.inf), axis=2)
    ordered = mx.take_along_axis(shares, order, axis=2)
    inside = mx.cumsum(ordered, axis=2) - ordered < typical_p
    inside = inside | (draw.place_numbers(values.shape[2]) == 0)
    return mx.where(mx.take_along_axis(inside, mx.argsort(order, axis=2), axis=2), weights, 0)


def _without_top_choices(weights: mx.array, coin: mx.array, threshold: mx.array) -> mx.array:
    """XTC: where the coin says so, of all tokens at or above the threshold the least likely stays.

    Equals of that one stay, too.
    """
    shares = weights / weights.sum(axis=2, keepdims=True)
    above = (weights > 0) & (shares >= threshold)
    last = mx.where(above, weights, mx.inf).min(axis=2, keepdims=True)
    return mx.where(coin & (weights > last), 0, weights)
