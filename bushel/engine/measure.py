"""A model's sizes, found once at load: shapes of its state, and one short forward pass."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx

from bushel.cache import kind_of
from bushel.core import Prepared
from bushel.core.memory import Footprint, alike
from bushel.models import Model

_CHUNK = 64  # tokens of the pass
# Widths of a head for which MLX attends without writing the scores down, on a GPU.
_FUSED = (64, 80, 96, 128)
_METAL_BUFFERS = 499_000  # that a process may hold at once
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def footprint(model: Model) -> Footprint:
    """Runs the model for a moment; leaves nothing behind."""
    tokens = min(_CHUNK, model.context or _CHUNK)
    weights, buffers = model.weights
    per_score = _per_score(model)
    state, prompt = model.make_state(), model.embed(Prepared((0,) * tokens))
    mx.synchronize()
    mx.reset_peak_memory()
    model.prefill(prompt, 0, tokens, state)
    mx.eval([layer.state for layer in state])
    mx.synchronize()
    above = mx.get_peak_memory() - mx.get_active_memory()
    pieces = [piece for layer in state for piece in kind_of(layer).size(layer, tokens)]
    return Footprint(
        weights=weights,
        weight_buffers=buffers,
        pieces=alike(pieces),
        per_token=max(0, above // tokens - per_score * tokens),
        per_score=per_score,
        # Logits, the same in float32, and as much again for penalties and drawing.
        per_row=16 * model.vocab,
    )


def _per_score(model: Model) -> int:
    """Bytes per pair of tokens that attend, with their mask; 0 where no kernel writes them."""
    if mx.default_device() == mx.gpu:
        fused = model.head_dim in _FUSED and model.kv_bits is None
        return 0 if fused else 2 * model.heads + 1
    return 4 * model.heads + 1


def memory_limit() -> int:
    """Bytes that MLX should stay under on this machine."""
    limit = int(mx.get_memory_limit())
    recommended = mx.device_info().get("max_recommended_working_set_size")
    if mx.metal.is_available() and recommended:
        return int(recommended)
    try:
        return min(limit, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return limit


def buffer_limit() -> int:
    return _METAL_BUFFERS if mx.metal.is_available() else 1 << 62


def in_use() -> dict[str, int]:
    """Bytes that MLX holds, and has held at most."""
    return {
        "active_bytes": mx.get_active_memory(),
        "peak_bytes": mx.get_peak_memory(),
        "cache_bytes": mx.get_cache_memory(),
    }
