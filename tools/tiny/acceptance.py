"""How often the MTP layer foretells the token that the model itself chooses next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
from mlx_vlm.speculative.drafters import load_drafter
from mlx_vlm.utils import load_model


def acceptance(path: Path, replies: Sequence[tuple[Sequence[int], Sequence[int]]]) -> float:
    """Over greedy replies (prompt ids, reply ids): the share of drafts at depth 1 that hold.

    hidden state at t, token t + 1  ->  draft of token t + 2, for every t + 2 of the reply
    """
    network = load_model(path)
    network.set_dtype(mx.float32)
    held = total = 0
    drafter, _ = load_drafter(str(path))
    drafter.set_dtype(mx.float32)
    for prompt, reply in replies:
        ids = mx.array([[*prompt, *reply]])
        hidden = network.language_model(ids, return_hidden=True).hidden_states[-1]
        drafter.reset(network)
        ahead = drafter._forward_tokens(ids[:, 1:], hidden[:, :-1], mx.int32)
        drafts = mx.argmax(network.language_model.model.embed_tokens.as_linear(ahead), axis=-1)
        first = len(prompt) - 1
        wanted, drafted = ids[0, first + 2 :], drafts[0, first:-1]
        held += int((wanted == drafted).sum())
        total += wanted.size
    return held / max(total, 1)
