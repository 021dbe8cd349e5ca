"""Typical_p, top_n_sigma, XTC, DRY, windows and bad words, in plain numpy and float64."""

from collections.abc import Sequence

import numpy as np

from bushel.core import Decoding

Array = np.ndarray


def drawable(logits: Array, row: Decoding) -> Array:
    """Probabilities of [V] before XTC, each step over what the one before it has left."""
    x = logits.astype(np.float64) / row.temperature
    keep = np.isfinite(x)
    if row.top_n_sigma:
        keep &= x >= x.max() - row.top_n_sigma * x[keep].std()
    if row.top_k:
        keep &= x >= np.sort(x)[-min(row.top_k, len(x))]
    if row.min_p:
        keep &= x >= x.max() + np.log(row.min_p)
    if row.typical_p < 1:
        shares = _shares(x, keep)
        surprise = -np.log(shares[keep])
        distance = np.full(len(x), np.inf)
        distance[keep] = np.abs(surprise - (shares[keep] * surprise).sum())
        keep &= _first_to(shares, np.argsort(distance, kind="stable"), row.typical_p)
    if row.top_p < 1:
        shares = _shares(x, keep)
        keep &= _first_to(shares, np.argsort(-shares, kind="stable"), row.top_p)
    return _shares(x, keep)


def without_top_choices(shares: Array, threshold: float) -> Array:
    """XTC, where it is tossed: of those at the threshold or above, the least likely stays."""
    above = np.flatnonzero((shares > 0) & (shares >= threshold))
    if len(above) < 2:
        return shares
    left = shares.copy()
    left[above[shares[above] > shares[above].min()]] = 0
    return np.asarray(left / left.sum())


def expected(logits: Array, row: Decoding) -> Array:
    """Probabilities of [V], over all tosses."""
    shares = drawable(logits, row)
    tossed = without_top_choices(shares, row.xtc_threshold)
    return shares * (1 - row.xtc_probability) + tossed * row.xtc_probability


def _shares(x: Array, keep: Array) -> Array:
    weights = np.where(keep, np.exp(x - x[keep].max()), 0)
    return np.asarray(weights / weights.sum())


def _first_to(shares: Array, order: Array, goal: float) -> Array:
    """The first of them in this order that have the goal together."""
    before = np.cumsum(shares[order]) - shares[order]
    inside = np.zeros(len(shares), np.bool_)
    inside[order[(before < goal) | (np.arange(len(order)) == 0)]] = True
    return inside


def dry_penalties(row: Decoding, said: Sequence[int], vocab: int) -> Array:
    """[V], by comparing the end of what was said with every place before it."""
    penalties = np.zeros(vocab)
    window = len(said) if row.dry_penalty_last_n < 0 else row.dry_penalty_last_n
    tokens = list(said)[-window:]
    for at in range(len(tokens) - 1):
        length = 0
        while (
            length <= at
            and tokens[at - length] == tokens[-1 - length]
            and tokens[-1 - length] not in row.token_rules.breakers
        ):
            length += 1
        if length and length >= row.dry_allowed_length:
            penalty = row.dry_multiplier * row.dry_base ** (length - row.dry_allowed_length)
            penalties[tokens[at + 1]] = max(penalties[tokens[at + 1]], penalty)
    return penalties


def reworked(logits: Array, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> Array:
    """Logits of [V] after all that was said, and what may not be chosen as -inf."""
    x = logits.astype(np.float64).copy()
    said = [*prompt, *reply]
    for token in set(said[-row.repeat_last_n :] if row.repeat_last_n > 0 else said):
        x[token] *= 1 / row.repetition_penalty if x[token] > 0 else row.repetition_penalty
    for token in set(reply):
        x[token] -= row.frequency_penalty * list(reply).count(token) + row.presence_penalty
    if row.dry_multiplier:
        x -= dry_penalties(row, said, len(x))
    for *before, last in row.token_rules.banned:
        if list(reply[len(reply) - len(before) :]) == before:
            x[last] = -np.inf
    if row.allowed_ids:
        x[np.setdiff1d(np.arange(len(x)), row.allowed_ids)] = -np.inf
    return x
