"""Every way of choosing tokens, taken once before anybody waits for it.

A device compiles a kernel when it is first used: seconds of it on a GPU, in the middle of the first
reply that asks for such a sampler.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx

from bushel.core import GenerationDefaults, SamplingParams
from bushel.core.params import resolve
from bushel.engine.sampling.chooser import Masks
from bushel.engine.sampling.sampler import Sampler
from bushel.models import Model

log = logging.getLogger(__name__)

SAMPLERS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {},
    "min_p": {"min_p": 0.05},
    "top_p": {"top_p": 0.9},
    "low top_p": {"top_p": 0.3},
    "top_k": {"top_k": 20},
    "top_k and top_p": {"top_k": 20, "top_p": 0.9},
    "a large top_k": {"top_k": 5000},
    "penalties": {"repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.5},
    "greedy with penalties": {"temperature": 0.0, "repetition_penalty": 1.1},
    "logit_bias": {"logit_bias": {1: 1.0}},
    "typical_p": {"typical_p": 0.9},
    "XTC and top_n_sigma": {"top_k": 40, "xtc_probability": 0.5, "top_n_sigma": 1.0},
    "DRY": {"dry_multiplier": 0.8},
    "a repetition window": {"repetition_penalty": 1.1, "repeat_last_n": 64},
    "log-probabilities": {"temperature": 0.0, "logprobs": 5},
}
_STEPS = 2  # the first one may differ: nothing has been said yet
_WIDTH = 3  # of a draft with the token before it
_SLOW = 1.0  # seconds that are worth a word


def compile_samplers(
    model: Model, progress: Callable[[str], None], *, drafts: bool = False
) -> float:
    """For one row, for two, and for a batch of all of them; returns the seconds it took.

    drafts: along a draft as well.
    """
    begun = time.perf_counter()
    logits = model.forward(mx.array([[0]]), [0], model.make_state())[:, -1:]
    mx.eval(logits)
    alone = {name: [settings] for name, settings in SAMPLERS.items()}
    pairs = {f"two rows of {name}": [settings] * 2 for name, settings in SAMPLERS.items()}
    for name, rows in {**alone, **pairs, "all of them": [*SAMPLERS.values()]}.items():
        start = time.perf_counter()
        for held in (False, True):
            choose(logits, rows, held=held)
        if (seconds := time.perf_counter() - start) > _SLOW:
            progress(f"compiled the sampler for {name} in {seconds:.1f} s")
    if drafts:
        for held in (False, True):
            choose_along(logits, [*SAMPLERS.values()], held=held)
    seconds = time.perf_counter() - begun
    log.info("%d samplers were tried before their first use, in %.1f s", len(SAMPLERS), seconds)
    return seconds


def sampler_of(rows: Sequence[Mapping[str, Any]], vocab: int) -> Sampler:
    """With rows of these settings, each with its number as its seed unless it says another."""
    sampler = Sampler(vocab)
    for at, settings in enumerate(rows):
        usual = {"temperature": 0.8, "max_tokens": _STEPS, "seed": at}
        params = SamplingParams(**{**usual, **settings})
        decoding = resolve(params, GenerationDefaults(), vocab=vocab, end_ids=frozenset())
        sampler.join(decoding, [0], [])
    return sampler


def choose(logits: mx.array, rows: list[Mapping[str, Any]], *, held: bool = False) -> None:
    """A few steps of rows with these settings, all with these logits. held: to a grammar."""
    sampler, count = sampler_of(rows, logits.shape[-1]), len(rows)
    masks = _everything(logits, count) if held else None
    logits, inputs = mx.repeat(logits, count, axis=0), mx.zeros((count, 1), dtype=mx.uint32)
    for step in range(_STEPS):
        sampled = sampler.sample(logits, inputs, [step] * count, [step + 1] * count, masks)
        inputs = sampled.tokens
        mx.eval(sampled.arrays())
    if count > 1 and not held:  # those who stay, when one has left
        stay = [*range(1, count)]
        sampler.leave(stay)
        steps = [_STEPS] * len(stay), [_STEPS + 1] * len(stay)
        sampled = sampler.sample(logits[1:], inputs[mx.array(stay)], *steps, None)
        mx.eval(sampled.arrays())


def choose_along(logits: mx.array, rows: list[Mapping[str, Any]], *, held: bool = False) -> None:
    """The same along drafts, of which one token is kept."""
    sampler, count = sampler_of(rows, logits.shape[-1]), len(rows)
    masks = _everything(logits, count * _WIDTH) if held else None
    logits = mx.repeat(mx.repeat(logits, count, axis=0), _WIDTH, axis=1)
    inputs = mx.zeros((count, _WIDTH), dtype=mx.uint32)
    for step in range(_STEPS):
        where = [step] * count, [step + 1] * count
        sampled = sampler.sample_along(logits, inputs, [_WIDTH] * count, *where, masks)
        mx.eval(sampled.arrays())
        sampler.keep([1] * count)


def _everything(logits: mx.array, places: int) -> Masks:
    """Masks that allow all tokens."""
    words = mx.full((2, -(-logits.shape[-1] // 32)), 0xFFFFFFFF, dtype=mx.uint32)
    return Masks(mx.zeros(places, dtype=mx.int32), words)
