"""Choosing tokens for many rows at once. Every function treats each row on its own.

A row's result depends on its logits, its settings and its uniform numbers alone: never on
which other rows are in the batch, because which function a row goes through is decided by its
settings (`route`), and rows never mix.

Selecting from a wide vocabulary goes through groups of neighbouring tokens, so that nothing
is sorted at full width where it can be avoided:

    logits   [ . . . . | . . . . | . . . . | … ]      V tokens in groups of GROUP
    level 1    max / logsumexp per group               V / GROUP numbers: pick groups
    level 2    the picked groups' own tokens            pick tokens

Settings are columns [R, 1]; uniform numbers are [R, 2 * K] in [0, 1), for K draws. The order is
that of most servers: temperature, then top_k and min_p, then top_p over what is left. Few
operations matter as much as little data: each costs the host some microseconds per step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import mlx.core as mx
import numpy as np

from bushel.core import Decoding

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
_CPU = mx.default_device() == mx.cpu
_NEGATIVE = -math.inf
_LOWEST = -3e38  # of float32 and bfloat16, nearly

Route = Literal["greedy", "narrow", "wide", "ranked"]


def route(row: Decoding) -> Route:
    """Which function serves a row: the cheapest one that honours its settings."""
    if row.temperature < LEAST_TEMPERATURE or row.top_k == 1:
        return "greedy"
    if row.top_k:
        return "narrow" if row.top_k <= CANDIDATES else "ranked"
    return "wide" if row.top_p >= LEAST_NUCLEUS else "ranked"


def tries_for(row: Decoding) -> int:
    """Draws of a row on its way through `wide`, of which hardly ever (1.5e-5) all miss."""
    miss = (1 - LEAST_NUCLEUS) ** TRIES
    return next(it for it in range(1, TRIES + 1) if max(1 - row.top_p, 0) ** it <= miss)


def grouped(x: mx.array, fill: float, size: int) -> mx.array:
    """[R, V] as [R, G, size], padded with `fill`."""
    rows, width = x.shape
    if rest := -width % size:
        x = mx.pad(x, [(0, 0), (0, rest)], constant_values=fill)
    return x.reshape(rows, -1, size)


def top(x: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """The `count` largest of each row, in falling order, and where they stand.

    Up to CANDIDATES are cut from that many, so that among equal values the choice does not
    depend on `count`.
    """
    if count > CANDIDATES:
        places = mx.argsort(-x, axis=-1)[:, :count]
        return mx.take_along_axis(x, places, axis=-1), places
    _, places, groups = _candidates(x)
    ids = _tokens_at(places[:, :count], groups, x.shape[-1])
    return mx.take_along_axis(x, ids, axis=-1), ids


def _candidates(x: mx.array) -> tuple[mx.array, mx.array, mx.array | None]:
    """The CANDIDATES largest values of each row [R, C], falling, and what finds their tokens.

    Those are their places, in the row itself or, if groups [R, C] are given, in those groups
    laid end to end: see `_tokens_at`.
    """
    size = _size(x.shape[-1])
    if x.shape[-1] <= CANDIDATES * size:
        return *_best(x, ordered=True), None
    if x.shape[-1] % size:
        # Above the padding, so that no place of it is ever among the best.
        x = mx.maximum(x, _LOWEST)
    groups = grouped(x, _NEGATIVE, size)
    _, chosen = _best(groups.max(axis=-1), ordered=False)
    inside = mx.take_along_axis(groups, chosen[:, :, None], axis=1)
    return *_best(inside.reshape(x.shape[0], -1), ordered=True), chosen


def _tokens_at(places: mx.array, groups: mx.array | None, width: int) -> mx.array:
    if groups is None:
        return places
    size = _size(width)
    return mx.take_along_axis(groups, places // size, axis=-1) * size + places % size


def _size(width: int) -> int:
    """Of groups to find candidates in. A CPU has least to do if both levels are as long."""
    return min(GROUP, 1 << round(math.log2(width / CANDIDATES + 1) / 2)) if _CPU else GROUP


def _best(x: mx.array, *, ordered: bool) -> tuple[mx.array, mx.array]:
    """The CANDIDATES largest of each row and their places. On a GPU, MLX partitions by sorting."""
    if not _CPU or x.shape[-1] <= CANDIDATES:
        places = mx.argsort(-x, axis=-1)[:, :CANDIDATES]
        return mx.take_along_axis(x, places, axis=-1), places
    places = mx.argpartition(x, -CANDIDATES, axis=-1)[:, -CANDIDATES:]
    values = mx.take_along_axis(x, places, axis=-1)
    if not ordered:
        return values, places
    order = mx.argsort(-values, axis=-1)
    return mx.take_along_axis(values, order, axis=-1), mx.take_along_axis(places, order, axis=-1)


def _pick(weights: mx.array, u: mx.array) -> mx.array:
    """Indices [R, K], each with probability proportional to its weight in [R, N]; u is [R, K]."""
    sums = mx.cumsum(weights, axis=-1)[:, None, :]
    total = sums[:, :, -1:]
    # The second condition keeps a product that rounds up to the total on a positive weight.
    return ((sums <= u[:, :, None] * total) & (sums < total)).sum(axis=-1)


def _pick_tokens(weights: mx.array, u: mx.array) -> mx.array:
    """Independent draws [R, K] in proportion to weights [R, V]; u is [R, 2 * K]."""
    groups, tries = grouped(weights, 0, GROUP), u.shape[1] // 2
    group = _pick(groups.sum(axis=-1), u[:, :tries])
    inside = mx.take_along_axis(groups, group[:, :, None], axis=1).reshape(-1, GROUP)
    place = _pick(inside, u[:, tries:].reshape(-1, 1))
    return group * GROUP + place.reshape(group.shape)


def _exp(x: mx.array) -> mx.array:
    """Of numbers up to 0; exactly 0 for those far below.

    MLX's CPU build has no vector exp: 22 ns a number, where these products take 2. By as much as
    5e-6 they are off.
    """
    if not _CPU:
        return mx.exp(x)
    y = mx.maximum(x, -128) / 128
    power = 1 + y * (1 + y * (1 / 2 + y * (1 / 6 + y * (1 / 24 + y / 120))))
    for _ in range(7):
        power = power * power
    return power


def wide(
    x: mx.array,
    u: mx.array,
    temperature: mx.array,
    min_p: mx.array | None,
    top_p: mx.array | None,
    tries: mx.array | None = None,
) -> mx.array:
    """Sample [R] tokens from logits [R, V]; a setting that no row uses is None.

    A row that does not use a setting (min_p 0, top_p 2) goes through it unchanged. tries: how many
    draws count for a row that has a top_p; None for all that there are numbers for.
    """
    x = x.astype(mx.float32)
    x = (x - x.max(axis=-1, keepdims=True)) / temperature
    weights = _exp(x)
    if min_p is not None:
        # A product, because `where` on a CPU is a branch, which costs three times as much.
        weights = weights * (x >= mx.log(min_p))
    drawn = _pick_tokens(weights, u)
    return drawn[:, 0] if top_p is None else _first_inside(weights, drawn, top_p, tries)


def _first_inside(
    weights: mx.array, drawn: mx.array, top_p: mx.array, tries: mx.array | None
) -> mx.array:
    """The first of several draws [R, K] that lies in its row's nucleus.

    A token is in the nucleus if all tokens more likely than it have less than top_p together,
    so a draw is tested with one sum and nothing is sorted. If every draw misses, the most
    likely token, which is always inside.
    """
    own = mx.take_along_axis(weights, drawn, axis=-1)
    above = ((weights[:, None, :] > own[:, :, None]) * weights[:, None, :]).sum(axis=-1)
    inside = above < top_p * weights.sum(axis=-1, keepdims=True)
    if tries is not None:
        inside = inside & (mx.arange(drawn.shape[1]) < tries)
    first = mx.take_along_axis(drawn, mx.argmax(inside, axis=-1, keepdims=True), axis=-1)
    return mx.where(inside.any(axis=-1), first[:, 0], mx.argmax(weights, axis=-1))


def _pick_ranked(
    values: mx.array, u: mx.array, temperature: mx.array, min_p: mx.array, top_k: mx.array,
    top_p: mx.array,
) -> mx.array:  # fmt: skip
    """Sample a place [R, 1] among logits in falling order. What is kept is their beginning."""
    values = values.astype(mx.float32)
    values = (values - values[:, :1]) / temperature
    allowed = (mx.arange(values.shape[-1]) < top_k) & (values >= mx.log(min_p))
    probs = mx.where(allowed, mx.exp(values), 0)
    sums = mx.cumsum(probs, axis=-1)
    kept = (allowed & (sums - probs < top_p * sums[:, -1:])).sum(axis=-1, keepdims=True)
    # The most likely token is always kept, also at top_p 0.
    total = mx.take_along_axis(sums, mx.maximum(kept, 1) - 1, axis=-1)
    return ((sums <= u[:, :1] * total) & (sums < total)).sum(axis=-1, keepdims=True)


def narrow(
    x: mx.array, u: mx.array, temperature: mx.array, min_p: mx.array, top_k: mx.array,
    top_p: mx.array,
) -> mx.array:  # fmt: skip
    """For 1 < top_k <= CANDIDATES: from each row's best tokens alone."""
    values, places, groups = _candidates(x)
    place = _pick_ranked(values, u, temperature, min_p, top_k, top_p)
    return _tokens_at(mx.take_along_axis(places, place, axis=-1), groups, x.shape[-1])[:, 0]


def ranked(
    x: mx.array, u: mx.array, temperature: mx.array, min_p: mx.array, top_k: mx.array,
    top_p: mx.array,
) -> mx.array:  # fmt: skip
    """Any settings, by sorting the whole row."""
    ids = mx.argsort(-x, axis=-1)
    values = mx.take_along_axis(x, ids, axis=-1)
    place = _pick_ranked(values, u, temperature, min_p, top_k, top_p)
    return mx.take_along_axis(ids, place, axis=-1)[:, 0]


def penalise(
    x: mx.array, newest: mx.array, seen: mx.array, counts: mx.array,
    repetition: mx.array, presence: mx.array, frequency: mx.array,
) -> tuple[mx.array, mx.array]:  # fmt: skip
    """Logits after penalties, and the counts of what was said, with the newest tokens [R] in them.

    Repetition over prompt and reply, presence and frequency over the reply. -1 is no token.
    """
    x = x.astype(mx.float32)
    counts = counts + (mx.arange(x.shape[-1]) == newest[:, None])
    # Products, as in `wide`; where nothing is penalised they leave infinities alone.
    known, said = mx.minimum(seen + counts, 1), mx.minimum(counts, 1)
    factor = repetition + (x > 0) * (1 / repetition - repetition)
    x = x * (1 + known * (factor - 1))
    return x - frequency * counts - presence * said, counts


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


_COUNTER = np.arange(2 * TRIES, dtype=np.uint64) * np.uint64(_GOLDEN)


def uniforms(seeds: Sequence[int], positions: Sequence[int], steps: int) -> np.ndarray:
    """[steps, R, 2 * TRIES] numbers in [0, 1), for each row's next positions.

    Those of row i at step s are a function of (seeds[i], positions[i] + s), nothing else.
    """
    ahead = np.arange(steps, dtype=np.uint64)[:, None]
    rows = _mix(_mix(_as_uint64(seeds)) ^ (_as_uint64(positions) + ahead))
    bits = _mix(rows[:, :, None] + _COUNTER)
    # 24 bits, so that float32 holds them exactly and never rounds up to 1.
    return ((bits >> np.uint64(40)).astype(np.float32)) / np.float32(1 << 24)


def derived_seed(seed: int, choice: int) -> int:
    """Choice 0 keeps the request's seed, so that n=1 and n>1 share their first reply."""
    return seed if choice == 0 else int(_mix(_mix(_as_uint64([seed])) + np.uint64(choice))[0])
