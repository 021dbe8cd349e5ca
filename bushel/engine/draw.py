"""Choosing tokens for many rows at once. Every function treats each row on its own.

A row's result depends on its logits, its settings and its two uniform numbers alone: never on
which other rows are in the batch, because which function a row goes through is decided by its
settings (see `sampler.py`), and rows never mix.

Selecting from a wide vocabulary goes through groups of neighbouring tokens, so that nothing
is ever sorted at full width:

    logits   [ . . . . | . . . . | . . . . | … ]      V tokens in groups of GROUP
    level 1    max / logsumexp per group               V / GROUP numbers: pick groups
    level 2    the picked groups' own tokens            pick tokens
"""

from __future__ import annotations

import math

import mlx.core as mx

# Balances the two levels for vocabularies of 32k to 262k: V / GROUP and CANDIDATES * GROUP
# are both a few thousand.
GROUP = 64
# top_k up to this many goes through sorted candidates; beyond it, a full sort.
CANDIDATES = 64
# Halvings of the nucleus threshold: 18 leave a band of 1e-4 nats, so that the kept mass
# exceeds top_p by what lies in that band at most.
_HALVINGS = 18
_NEGATIVE = -math.inf


def grouped(x: mx.array) -> mx.array:
    """[R, V] as [R, G, GROUP], padded with -inf."""
    rows, width = x.shape
    if rest := -width % GROUP:
        x = mx.pad(x, [(0, 0), (0, rest)], constant_values=_NEGATIVE)
    return x.reshape(rows, -1, GROUP)


def top(x: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """The `count` largest of each row, in falling order, and where they stand."""
    if count > CANDIDATES or x.shape[-1] <= CANDIDATES * GROUP:
        return _top_of(x, count)
    groups = grouped(x)
    best = mx.argpartition(-groups.max(axis=-1), count - 1, axis=-1)[:, :count]
    values = mx.take_along_axis(groups, best[:, :, None], axis=1)
    ids = best[:, :, None] * GROUP + mx.arange(GROUP)
    values, places = _top_of(values.reshape(x.shape[0], -1), count)
    return values, mx.take_along_axis(ids.reshape(x.shape[0], -1), places, axis=-1)


def _top_of(x: mx.array, count: int) -> tuple[mx.array, mx.array]:
    places = mx.argpartition(-x, count - 1, axis=-1)[:, :count] if count < x.shape[-1] else None
    values = x if places is None else mx.take_along_axis(x, places, axis=-1)
    order = mx.argsort(-values, axis=-1)
    values = mx.take_along_axis(values, order, axis=-1)
    return values, order if places is None else mx.take_along_axis(places, order, axis=-1)


def _pick(weights: mx.array, u: mx.array) -> mx.array:
    """An index per row, with probability proportional to its weight. u is [R, 1] in [0, 1)."""
    sums = mx.cumsum(weights, axis=-1)
    total = sums[:, -1:]
    # The second condition keeps a product that rounds up to the total on a positive weight.
    return ((sums <= u * total) & (sums < total)).sum(axis=-1)


def draw_wide(
    x: mx.array, temperature: mx.array, top_k: mx.array | None, min_p: mx.array | None,
    top_p: mx.array | None, u: mx.array,
) -> mx.array:  # fmt: skip
    """Sample [R] tokens from logits [R, V]; settings are [R, 1], None where no row needs them.

    Temperature first, then top_k and min_p, then top_p over what is left.
    """
    x = x / temperature
    if top_k is not None:
        ranked = mx.sort(x, axis=-1)
        kth = mx.take_along_axis(ranked, x.shape[-1] - mx.minimum(top_k, x.shape[-1]), axis=-1)
        x = mx.where(x < kth, _NEGATIVE, x)
    if min_p is not None:
        x = mx.where(x < x.max(axis=-1, keepdims=True) + mx.log(min_p), _NEGATIVE, x)
    if top_p is not None:
        x = _nucleus(x, top_p)
    groups = grouped(x)
    mass = mx.logsumexp(groups, axis=-1)
    group = _pick(mx.exp(mass - mass.max(axis=-1, keepdims=True)), u[:, :1])[:, None, None]
    inside = mx.take_along_axis(groups, group, axis=1)[:, 0]
    token = _pick(mx.exp(inside - inside.max(axis=-1, keepdims=True)), u[:, 1:])
    return group[:, 0, 0] * GROUP + token


def _nucleus(x: mx.array, top_p: mx.array) -> mx.array:
    """Drop the tail of each row beyond the most likely tokens that together reach top_p.

    The threshold is found by halving: mass(> low) >= top_p > mass(> high) throughout. A token
    less likely than (1 - top_p) / V is never needed, which bounds `low`.
    """
    logprobs = x - mx.logsumexp(x, axis=-1, keepdims=True)
    probs = mx.exp(logprobs)
    wanted = mx.clip(top_p, 1e-9, 1 - 1e-6)
    low = mx.log((1 - wanted) / x.shape[-1])
    high = logprobs.max(axis=-1, keepdims=True)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = mx.where(logprobs > middle, probs, 0).sum(axis=-1, keepdims=True) >= wanted
        low, high = mx.where(enough, middle, low), mx.where(enough, high, middle)
    return mx.where((logprobs > low) | (top_p >= 1), x, _NEGATIVE)


def draw_narrow(
    x: mx.array, temperature: mx.array, top_k: mx.array, min_p: mx.array, top_p: mx.array,
    u: mx.array,
) -> mx.array:  # fmt: skip
    """As `draw_wide` for rows with 1 <= top_k <= CANDIDATES, from their best tokens alone."""
    values, ids = top(x, min(CANDIDATES, x.shape[-1]))
    values = values / temperature
    allowed = mx.arange(values.shape[-1]) < top_k
    allowed = allowed & (values >= values[:, :1] + mx.log(min_p))
    probs = mx.softmax(mx.where(allowed, values, _NEGATIVE), axis=-1)
    before = mx.cumsum(probs, axis=-1) - probs
    place = _pick(mx.where((before < top_p) | (before <= 0), probs, 0), u[:, :1])
    return mx.take_along_axis(ids, place[:, None], axis=-1)[:, 0]


def penalise(
    x: mx.array, seen: mx.array, counts: mx.array,
    repetition: mx.array, presence: mx.array, frequency: mx.array,
) -> mx.array:  # fmt: skip
    """Repetition over prompt and reply, presence and frequency over the reply; settings [R, 1]."""
    said = counts > 0
    x = mx.where(seen | said, mx.where(x > 0, x / repetition, x * repetition), x)
    return x - frequency * counts - mx.where(said, presence, 0)


_MASK64 = (1 << 64) - 1


def _mix(value: int) -> int:
    """One round of splitmix64."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


def uniforms(seed: int, position: int) -> tuple[float, float]:
    """Two numbers in [0, 1) for one token: a function of (seed, position) and nothing else."""
    bits = _mix(_mix(seed & _MASK64) ^ position)
    # 24 bits each, so that float32 holds them exactly and never rounds up to 1.
    return (bits >> 40) / (1 << 24), (bits & 0xFFFFFF) / (1 << 24)


def derived_seed(seed: int, choice: int) -> int:
    """Choice 0 keeps the request's seed, so that n=1 and n>1 share their first reply."""
    return seed if choice == 0 else _mix(_mix(seed & _MASK64) + choice)
