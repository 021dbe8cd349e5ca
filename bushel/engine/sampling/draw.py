"""Choosing tokens for many rows at once. Every function treats each row on its own.

A row's result depends on its logits, its settings and its uniform numbers alone: never on
which other rows are in the batch, because which function a row goes through is decided by its
settings (`route`), and rows never mix.

Selecting from a wide vocabulary goes through groups of tokens, so that nothing is sorted at full
width where it can be avoided:

    logits   [ . . . . | . . . . | . . . . | … ]      V tokens in groups
    level 1    max / sum per group                     V / size numbers: pick groups
    level 2    the picked groups' own tokens           pick tokens

A group is a column of [R, size, V / size]: on a CPU MLX is four times as fast along that axis as
along the last. Settings are [R, 1, 1], temperature as its inverse and min_p as its logarithm;
uniform numbers are [R, 2, K] in [0, 1), for K draws. The order is that of most servers:
temperature, then top_k and min_p, then top_p over what is left. Few operations matter as much as
little data: each costs the host some microseconds per step, views as well, so that axes stay where
they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import mlx.core as mx
import numpy as np

from bushel.core import Decoding
from bushel.models.device import ON_CPU

# Balances the two levels for vocabularies of 32k to 262k: V / GROUP and CANDIDATES * GROUP
# are both a few thousand.
GROUP = 64
# top_k up to this many goes through sorted candidates; beyond it, a full sort.
CANDIDATES = 64
# Draws of `wide` where a row uses top_p, at most. A draw misses the nucleus with a probability of
# at most 1 - top_p, so that all of them miss with 0.25 ** 8 = 1.5e-5 at LEAST_NUCLEUS.
TRIES = 8
LEAST_NUCLEUS = 0.75
# Below it logits could overflow float32, and differences of 1e-3 nats decide anyway.
LEAST_TEMPERATURE = 1e-5
# What is added to logits of tokens that may not be chosen: finite, so that a grammar to which
# nothing else is left has its way.
RULED_OUT = -1e30
_NEGATIVE = -math.inf
_FAR = -128.0  # an exponential that is 0 in float32
_LOWEST = -3e38  # of float32 and bfloat16, nearly

Route = Literal["greedy", "narrow", "wide", "ranked", "shaped_narrow", "shaped"]


def route(row: Decoding) -> Route:
    """Which function serves a row: the cheapest one that honours its settings."""
    if row.temperature < LEAST_TEMPERATURE or row.top_k == 1:
        return "greedy"
    if row.shaped:
        return "shaped_narrow" if 0 < row.top_k <= CANDIDATES else "shaped"
    if row.top_k:
        return "narrow" if row.top_k <= CANDIDATES else "ranked"
    return "wide" if row.top_p >= LEAST_NUCLEUS else "ranked"


def tries_for(row: Decoding) -> int:
    """Draws of a row on its way through `wide`, of which hardly ever (1.5e-5) all miss."""
    miss = (1 - LEAST_NUCLEUS) ** TRIES
    return next(tries for tries in range(1, TRIES + 1) if max(1 - row.top_p, 0) ** tries <= miss)


def _padded(x: mx.array, size: int) -> mx.array:
    """[R, V] with as many tokens of probability 0 as it takes for groups of one size."""
    rest = -x.shape[-1] % size
    return mx.pad(x, [(0, 0), (0, rest)], constant_values=_NEGATIVE) if rest else x


def top(x: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """The `count` largest of each row, in falling order, and where they stand.

    Up to CANDIDATES are cut from that many, so that among equal values the choice does not
    depend on `count`.
    """
    if count > CANDIDATES:
        places = mx.argsort(-x, axis=-1)[:, :count]
        return mx.take_along_axis(x, places, axis=-1), places
    _, places, groups = _candidates(x)
    ids = _tokens_at(places[:, :, :count], groups, x.shape[-1])[:, 0]
    return mx.take_along_axis(x, ids, axis=-1), ids


def _candidates(x: mx.array) -> tuple[mx.array, mx.array, mx.array | None]:
    """The CANDIDATES largest values of each row [R, 1, C], falling, and what finds their tokens.

    Those are their places, in the row itself or, if groups [R, 1, C] are given, among the tokens of
    those: see `_tokens_at`.
    """
    rows, width = x.shape
    size = _size(width)
    if width <= CANDIDATES * size:
        return *_best(x[:, None], ordered=True), None
    if width % size:
        # Above the padding, so that no place of it is ever among the best.
        x = mx.maximum(x, _LOWEST)
    groups = _padded(x, size).reshape(rows, size, -1)
    _, chosen = _best(groups.max(axis=1, keepdims=True), ordered=False)
    inside = mx.take_along_axis(groups, chosen, axis=2)
    return *_best(inside.reshape(rows, 1, -1), ordered=True), chosen


def _tokens_at(places: mx.array, groups: mx.array | None, width: int) -> mx.array:
    if groups is None:
        return places
    columns = -(-width // _size(width))
    chosen = mx.take_along_axis(groups, places % CANDIDATES, axis=2)
    return chosen + places // CANDIDATES * columns


def _size(width: int) -> int:
    """Of groups to find candidates in. A CPU has least to do if both levels are as long."""
    return min(GROUP, 1 << round(math.log2(width / CANDIDATES + 1) / 2)) if ON_CPU else GROUP


def _best(x: mx.array, *, ordered: bool) -> tuple[mx.array, mx.array]:
    """The CANDIDATES largest of [R, 1, N] and their places. On a GPU, MLX partitions by sorting."""
    if not ON_CPU or x.shape[2] <= CANDIDATES:
        places = mx.argsort(-x, axis=2)[:, :, :CANDIDATES]
        return mx.take_along_axis(x, places, axis=2), places
    places = mx.argpartition(x, -CANDIDATES, axis=2)[:, :, -CANDIDATES:]
    values = mx.take_along_axis(x, places, axis=2)
    if not ordered:
        return values, places
    order = mx.argsort(-values, axis=2)
    return mx.take_along_axis(values, order, axis=2), mx.take_along_axis(places, order, axis=2)


def _pick(weights: mx.array, u: mx.array) -> mx.array:
    """Indices [R, 1, K], each in proportion to weights [R, N, 1 or K]; u is [R, 1, K]."""
    return first_above(mx.where(weights > 0, mx.cumsum(weights, axis=1), 0), u, axis=1)


def first_above(sums: mx.array, u: mx.array, axis: int) -> mx.array:
    """Where u times the largest of running sums falls. What has none (0) is never found.

    On a GPU every sum is added up in another order, so that they may fall a little, and change
    where nothing was added; neither leads to a token without weight.
    """
    total = sums.max(axis=axis, keepdims=True)
    return mx.argmax(sums > u * total, axis=axis, keepdims=True)


def _weights(x: mx.array, largest: mx.array, scale: mx.array, least: mx.array | None) -> mx.array:
    """Of logits [R, N, G], the largest has 1; exactly 0 for those that are not kept, or far off."""
    x = (x - largest) * scale
    far = x < (_FAR if least is None else mx.maximum(least, _FAR))
    return _exp(mx.where(far, _FAR, x))


def _exp(x: mx.array) -> mx.array:
    """Of numbers from _FAR, exactly 0 there, to 0.

    MLX's CPU build has no vector exp: 22 ns a number, where these products take 2. They are off by
    up to 2e-5 of what they should be.
    """
    if not ON_CPU:
        return mx.exp(x)
    y = x / -_FAR
    power = 1 + y * (1 + y * (1 / 2 + y * (1 / 6 + y * (1 / 24 + y * (1 / 120)))))
    for _ in range(7):
        power = power * power
    return power


def wide(
    x: mx.array,
    u: mx.array,
    scale: mx.array,
    least: mx.array | None,
    top_p: mx.array | None,
    tries: mx.array | None = None,
) -> mx.array:
    """Sample [R] tokens from logits [R, V]; a setting that no row uses is None.

    A row that does not use a setting (least -inf, top_p 2) goes through it unchanged. tries: how
    many draws count for a row that has a top_p; None for all that there are numbers for.
    """
    rows = x.shape[0]
    x = _padded(x.astype(mx.float32), GROUP).reshape(rows, GROUP, -1)
    largest = x.max(axis=1, keepdims=True).max(axis=2, keepdims=True)
    weights = _weights(x, largest, scale, least)
    sums = weights.sum(axis=1, keepdims=True).reshape(rows, -1, 1)
    group = _pick(sums, u[:, :1])
    inside = mx.take_along_axis(weights, group, axis=2)
    place = _pick(inside, u[:, 1:])
    drawn = place * x.shape[2] + group
    if top_p is None:
        return (drawn if drawn.shape[2] == 1 else drawn[:, :, :1]).reshape(-1)
    own = mx.take_along_axis(inside, place, axis=1)
    total = sums.sum(axis=1, keepdims=True)
    if tries is None:
        tries = mx.array(TRIES)
    return _first_inside(weights, total, drawn, own, top_p, tries)


def _first_inside(
    weights: mx.array, total: mx.array, drawn: mx.array, own: mx.array, top_p: mx.array,
    tries: mx.array,
) -> mx.array:  # fmt: skip
    """The first of several draws [R, 1, K] that lies in its row's nucleus. own: their weights.

    A token is in the nucleus if all tokens more likely than it have less than top_p together,
    so a draw is tested with one sum and nothing is sorted. If every draw misses, the most
    likely token, which is always inside.
    """
    rows = weights.shape[0]
    edges = own.reshape(rows, -1, 1, 1)
    # A product, because `where` on a CPU is a branch, which costs three times as much.
    larger = (weights[:, None] > edges) * weights[:, None]
    above = larger.sum(axis=2, keepdims=True).sum(axis=3, keepdims=True).reshape(drawn.shape)
    inside = (above < top_p * total) & (place_numbers(drawn.shape[2]) < tries)
    first = mx.take_along_axis(drawn, mx.argmax(inside, axis=2, keepdims=True), axis=2)
    best = mx.argmax(weights.reshape(rows, 1, -1), axis=2, keepdims=True)
    return mx.where(inside.any(axis=2, keepdims=True), first, best).reshape(-1)


@cache
def place_numbers(count: int) -> mx.array:
    """Made once: in a compiled function it would be made in every call."""
    numbers = mx.arange(count)
    mx.eval(numbers)
    return numbers


def _pick_ranked(
    values: mx.array, u: mx.array, scale: mx.array, least: mx.array, top_k: mx.array,
    top_p: mx.array,
) -> mx.array:  # fmt: skip
    """Sample a place [R, 1, 1] among logits [R, 1, N] in falling order: from their beginning."""
    values = values.astype(mx.float32)
    values = (values - values[:, :, :1]) * scale
    allowed = (place_numbers(values.shape[2]) < top_k) & (values >= least)
    probs = mx.where(allowed, mx.exp(values), 0)
    sums = mx.cumsum(probs, axis=2)
    kept = (probs > 0) & (sums - probs < top_p * sums[:, :, -1:])
    # If none is kept, at top_p 0, the first is found: the most likely token.
    return first_above(mx.where(kept, sums, 0), u[:, :1, :1], axis=2)


def from_best(x: mx.array, pick: Callable[[mx.array], mx.array]) -> mx.array:
    """Tokens [R] at the places [R, 1, 1] that are picked among each row's best, which fall."""
    values, places, groups = _candidates(x)
    drawn = mx.take_along_axis(places, pick(values), axis=2)
    return _tokens_at(drawn, groups, x.shape[-1]).reshape(-1)


def from_all(x: mx.array, pick: Callable[[mx.array], mx.array]) -> mx.array:
    """The same of all tokens of a row."""
    x = x[:, None]
    ids = mx.argsort(-x, axis=2)
    place = pick(mx.take_along_axis(x, ids, axis=2))
    return mx.take_along_axis(ids, place, axis=2).reshape(-1)


def narrow(
    x: mx.array, u: mx.array, scale: mx.array, least: mx.array, top_k: mx.array,
    top_p: mx.array,
) -> mx.array:  # fmt: skip
    """For 1 < top_k <= CANDIDATES: from each row's best tokens alone."""
    return from_best(x, lambda values: _pick_ranked(values, u, scale, least, top_k, top_p))


def ranked(
    x: mx.array, u: mx.array, scale: mx.array, least: mx.array, top_k: mx.array,
    top_p: mx.array,
) -> mx.array:  # fmt: skip
    """Any settings, by sorting the whole row."""
    return from_all(x, lambda values: _pick_ranked(values, u, scale, least, top_k, top_p))


def penalise(
    x: mx.array, newest: mx.array, seen: mx.array, counts: mx.array,
    repetition: mx.array, inverse: mx.array, presence: mx.array, frequency: mx.array,
    window: tuple[mx.array, mx.array] | None = None,
) -> tuple[mx.array, mx.array]:  # fmt: skip
    """Logits after penalties, and the counts of what was said, with the newest tokens [R] in them.

    Repetition, with its inverse, over prompt and reply, presence and frequency over the reply. -1
    is no token. window: rows [R, 1] whose repetition penalty knows recent tokens alone, and 1 for
    those tokens.
    """
    x = x.astype(mx.float32)
    counts = counts + (place_numbers(x.shape[-1]) == newest[:, None])
    # Products, as in `_first_inside`; where nothing is penalised they leave infinities alone.
    known, spoken = mx.minimum(seen + counts, 1), mx.minimum(counts, 1)
    if window is not None:
        known = mx.where(window[0], window[1], known)
    factor = repetition + (x > 0) * (inverse - repetition)
    x = x * (1 + known * (factor - 1))
    return x - frequency * counts - presence * spoken, counts


_BITS = mx.arange(32, dtype=mx.uint32)


def hold(x: mx.array, words: mx.array, slots: mx.array) -> mx.array:
    """Logits [B, V] without the tokens that row i's mask, words[slots[i]], has no bit for.

    Every row goes through it: on a CPU that is a fifth of what taking rows out and putting them
    back costs, on a GPU two kernels instead of four.
    """
    bits = (words[slots][:, :, None] >> _BITS) & 1
    allowed = bits.reshape(x.shape[0], -1)[:, : x.shape[1]]
    return mx.where(allowed == 0, _NEGATIVE, x)


_GOLDEN = 0x9E3779B97F4A7C15


def _mix(values: np.ndarray) -> np.ndarray:
    """One round of splitmix64."""
    values = values + np.uint64(_GOLDEN)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _as_uint64(values: Sequence[int]) -> np.ndarray:
    return np.array([value & 0xFFFFFFFFFFFFFFFF for value in values], dtype=np.uint64)


_COUNTER = np.arange(2 * TRIES, dtype=np.uint64).reshape(2, TRIES) * np.uint64(_GOLDEN)


def uniforms(seeds: Sequence[int], positions: Sequence[int], steps: int) -> np.ndarray:
    """[steps, R, 2, TRIES] numbers in [0, 1), for each row's next positions.

    Those of row i at step s are a function of (seeds[i], positions[i] + s), nothing else.
    """
    ahead = np.arange(steps, dtype=np.uint64)[:, None]
    rows = _mix(_mix(_as_uint64(seeds)) ^ (_as_uint64(positions) + ahead))
    bits = _mix(rows[:, :, None, None] + _COUNTER)
    # 24 bits, so that float32 holds them exactly and never rounds up to 1.
    return ((bits >> np.uint64(40)).astype(np.float32)) / np.float32(1 << 24)


def derived_seed(seed: int, choice: int) -> int:
    """Choice 0 keeps the request's seed, so that n=1 and n>1 share their first reply."""
    return seed if choice == 0 else int(_mix(_mix(_as_uint64([seed])) + np.uint64(choice))[0])
