"""What `draw.py` and `sampler.py` must agree with, in plain numpy and float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bushel.core import Decoding, GenerationDefaults, SamplingParams
from bushel.core.params import resolve

Array = np.ndarray

VOCAB = 300
ENDS = frozenset({2, 3})


def decoding(vocab: int = VOCAB, **said: Any) -> Decoding:
    said.setdefault("seed", 1)
    return resolve(SamplingParams(**said), GenerationDefaults(), vocab=vocab, end_ids=ENDS)


@dataclass(frozen=True)
class Settings:
    temperature: float = 1.0
    top_k: int = 0  # 0: off
    min_p: float = 0.0
    top_p: float = 1.0


def allowed(logits: Array, it: Settings, *, nats: float = 0.0, mass: float = 0.0) -> Array:
    """Which tokens of [V] may be drawn; ties at an edge all may.

    nats and mass widen every edge, for what float32 and the nucleus search may add.
    """
    # The quotient is rounded to float32 as the engine does; everything after it is exact.
    x = (logits.astype(np.float32) / np.float32(it.temperature)).astype(np.float64)
    keep = np.isfinite(x)
    if it.top_k:
        keep &= x >= np.sort(x)[-min(it.top_k, len(x))] - nats
    if it.min_p:
        keep &= x >= x.max() + np.log(it.min_p) - nats
    if it.top_p < 1:
        ranked = np.sort(x[keep])[::-1]
        share = np.exp(ranked - ranked[0])
        before = (np.cumsum(share) - share) / share.sum()
        last = ranked[(before < it.top_p + mass) | (before == 0)][-1]
        keep &= x >= last - nats
    return keep


def distribution(logits: Array, it: Settings) -> Array:
    """Probabilities of [V] under these settings."""
    keep = allowed(logits, it)
    x = np.where(keep, logits.astype(np.float64) / it.temperature, -np.inf)
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def penalised(logits: Array, row: Decoding, prompt: list[int], reply: list[int]) -> Array:
    """Logits of [V] after penalties, bias and min_tokens, for the token after `reply`."""
    x = logits.astype(np.float64).copy()
    for token in {*prompt, *reply}:
        x[token] = x[token] / row.repetition_penalty if x[token] > 0 else (
            x[token] * row.repetition_penalty
        )  # fmt: skip
    for token in set(reply):
        x[token] -= row.frequency_penalty * reply.count(token) + row.presence_penalty
    for token, value in row.logit_bias:
        x[token] += value
    if len(reply) < row.min_tokens:
        x[list(row.banned_early)] = -np.inf
    return x


def excess(counts: Array, expected: Array) -> float:
    """How many standard deviations chi-square lies above its mean; rare tokens are pooled."""
    if counts[expected == 0].any():
        return float("inf")
    rare = expected < 5
    seen = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    seen, wanted = seen[wanted > 0], wanted[wanted > 0]
    free = len(wanted) - 1
    if free == 0:
        return 0.0
    return float((((seen - wanted) ** 2 / wanted).sum() - free) / np.sqrt(2 * free))
