"""How much of a prompt was computed before: the words of cache, engine, logs and metrics."""

from __future__ import annotations

from typing import Literal, get_args

# How what is kept met a prompt.
Hit = Literal["exact", "prefix", "shorter", "fork", "disk"]
HITS: tuple[Hit, ...] = get_args(Hit)

# Why a prompt was not restored further.
Miss = Literal[
    "off",
    "prompt_logprobs",  # all of it has to be run
    "mean_pooling",  # so it has
    "unknown",  # nothing that is kept begins like it
    "no_state",  # more agrees, but not every layer's state is there
    "diverged",
    "not_restored",
]
MISSES: tuple[Miss, ...] = get_args(Miss)
