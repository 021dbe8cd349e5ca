"""The library's own single-request loop: the reference every engine result is held to."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache


@dataclass(frozen=True)
class Solo:
    """Greedy tokens, and the log-probabilities [n, vocab] each was chosen from."""

    tokens: list[int]
    logprobs: np.ndarray


def solo_text(
    model: nn.Module,
    token_ids: Sequence[int],
    max_tokens: int,
    prefill_step_size: int = 2048,
    cuts: Sequence[int] = (),
) -> Solo:
    """`cuts` are where the prompt is cut before the loop cuts the rest of it."""
    if type(model).__module__.startswith("mlx_vlm"):
        return _solo_of_vlm(model, token_ids, max_tokens, prefill_step_size, cuts)
    ids, cache = list(token_ids), make_prompt_cache(model)
    for start, end in pairwise([0, *cuts]):
        model(mx.array([ids[start:end]]), cache=cache)
        mx.eval([layer.state for layer in cache])
    steps = generate_step(
        mx.array(ids[cuts[-1] if cuts else 0 :]),
        model,
        max_tokens=max_tokens,
        prompt_cache=cache,
        prefill_step_size=prefill_step_size,
    )
    tokens, logprobs = zip(
        *((token, np.array(row.astype(mx.float32))) for token, row in steps), strict=True
    )
    return Solo(list(tokens), np.stack(logprobs))


def _solo_of_vlm(model: nn.Module, token_ids: Sequence[int], *how: Any) -> Solo:
    from mlx_vlm.models.hy_v4 import indexer

    from .library_vision_loop import solo_tensors

    # Compiled once for all lengths, hy_v4's choice is right at the first one alone.
    anew = indexer._partition_scores.__wrapped__
    with patch.object(indexer, "_partition_scores", anew):
        solo = solo_tensors(model, {"input_ids": mx.array([list(token_ids)])}, *how)
    return Solo(solo.tokens, solo.logprobs)
