"""The library's own single-request loop: the reference every engine result is held to."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.generate import generate_step


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
) -> Solo:
    steps = generate_step(
        mx.array(list(token_ids)),
        model,
        max_tokens=max_tokens,
        prefill_step_size=prefill_step_size,
    )
    tokens, logprobs = zip(
        *((token, np.array(row.astype(mx.float32))) for token, row in steps), strict=True
    )
    return Solo(list(tokens), np.stack(logprobs))
