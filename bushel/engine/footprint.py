"""A model's sizes, found once at load: shapes of its state, and two short chunks."""

from __future__ import annotations

import mlx.core as mx

from bushel.cache import drafts, kind_of
from bushel.core import Prepared
from bushel.core.footprint import Footprint, alike
from bushel.engine.row_state import new_row
from bushel.engine.sampling.draw import TRIES
from bushel.models import Model, Prompt, State
from bushel.models.device import ON_CPU
from bushel.models.latent_attention import expanded_token

_CHUNK = 64  # tokens of a pass
# Bytes for each pair of tokens of a text that some encoders write their masks down with: two in
# float32, and what they are made of.
_MASKS = 16
# Widths of a head for which MLX attends without writing the scores down, on a GPU.
_FUSED = (64, 80, 96, 128)
# Bytes: logits, the same in float32, as much again for penalties; and what a draw by top_p holds
# against each other, in float32, for each of its tries.
PER_LOGIT = 16 + 4 * TRIES


def footprint(model: Model, columns: int = 0) -> Footprint:
    """Runs the model for a moment; leaves nothing behind.

    columns: of passes that verify drafts, at most; 0: rows take none.
    """
    if model.encodes:
        return _of_encoder(model)
    tokens = max(1, min(_CHUNK, (model.context or 2 * _CHUNK) // 2))
    weights, buffers = model.weights
    per_score = _per_score(model)
    prompt = model.embed(Prepared((0,) * (2 * tokens)))
    # Two chunks, twice: only the second one has tokens before it to look at, and a device that
    # overtakes the host in one of them frees early what can be alive at once (tiny llama on two
    # busy cores, bytes per token: 2,093 to 3,664 after the first, 3,865 to 4,694 after both).
    per_token = 0
    for _ in range(2):
        state = new_row(model)
        for start in (0, tokens):
            above = _above(model, prompt, start, start + tokens, state)
            per_token = max(per_token, above // tokens - per_score * (start + tokens))
    if columns:
        sizes = drafts.sizes(state, 2 * tokens, columns)
    else:
        sizes = [size for layer in state for size in kind_of(layer).size(layer, 2 * tokens)]
    return Footprint(
        weights=weights,
        weight_buffers=buffers,
        layers=alike(sizes),
        per_token=per_token,
        per_score=per_score,
        per_row=PER_LOGIT * model.vocab,
        per_seen=expanded_token(model.network),
    )


def _of_encoder(model: Model) -> Footprint:
    """It keeps nothing of a text but what it gives."""
    tokens = max(1, min(_CHUNK, model.context or _CHUNK))
    weights, buffers = model.weights
    per_score = _per_score(model) + _MASKS
    prompt = model.embed(Prepared((0,) * tokens))
    per_token = 0
    for _ in range(2):
        mx.synchronize()
        mx.reset_peak_memory()
        pooled = model.encode([prompt])
        mx.eval(pooled)
        mx.synchronize()
        above = mx.get_peak_memory() - mx.get_active_memory()
        per_token = max(per_token, above // tokens - per_score * tokens)
    return Footprint(
        weights=weights,
        weight_buffers=buffers,
        layers=(),
        per_token=per_token,
        per_score=per_score,
        per_row=pooled.nbytes,
        whole=True,
    )


def _above(model: Model, prompt: Prompt, start: int, end: int, state: State) -> int:
    """Bytes that were alive while a chunk ran, and are not after it."""
    mx.synchronize()
    mx.reset_peak_memory()
    model.prefill(prompt, start, end, state)
    mx.eval([layer.state for layer in state])
    mx.synchronize()
    return mx.get_peak_memory() - mx.get_active_memory()


def _per_score(model: Model) -> int:
    """Bytes per pair of tokens that attend, with their mask; 0 where no kernel writes them."""
    if not ON_CPU:
        fused = model.head_dim in _FUSED and model.kv_bits is None
        return 0 if fused else 4 * model.heads + 1
    return 4 * model.heads + 1
