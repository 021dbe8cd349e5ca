"""Requests of every sort for a hybrid vision model, with their settings."""

from typing import Any

import numpy as np

from bushel import SamplingParams
from tests.families.images import LARGE, MEDIUM, SMALL, picture

Pair = tuple[dict[str, Any], SamplingParams]

GUILTY_SEED = 666
GUILTY_STOP = "never said"


def ids(length: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"prompt_token_ids": rng.integers(16, 512, length).tolist()}


def look(question: str, *sizes: tuple[int, int], seed: int = 0) -> dict[str, Any]:
    images = [
        {"type": "image_url", "image_url": {"url": picture(size, seed + at)}}
        for at, size in enumerate(sizes)
    ]
    return {
        "messages": [{"role": "user", "content": [*images, {"type": "text", "text": question}]}]
    }


def innocent() -> list[Pair]:
    """Six requests that share nothing but a batch."""
    greedy: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
    warm: dict[str, Any] = {"temperature": 1.2, "ignore_eos": True}
    return [
        (ids(5, 1), SamplingParams(max_tokens=24, **greedy)),
        (look("What is this?", MEDIUM), SamplingParams(max_tokens=24, **greedy)),
        (ids(70, 2), SamplingParams(max_tokens=20, seed=1, top_p=0.9, **warm)),
        (look("And these?", SMALL, LARGE, seed=5), SamplingParams(max_tokens=22, seed=2, **warm)),
        (ids(33, 3), SamplingParams(max_tokens=24, seed=3, top_k=20, **warm)),
        (ids(2, 4), SamplingParams(max_tokens=24, repetition_penalty=1.3, **greedy)),
    ]


def guilty() -> Pair:
    """A request that tests can recognise by its length, its seed and its stop string."""
    params = SamplingParams(
        max_tokens=20, ignore_eos=True, temperature=1.0, seed=GUILTY_SEED, stop=GUILTY_STOP
    )
    return ids(47, 9), params
