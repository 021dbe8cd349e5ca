"""Prediction heads as they are published, with random weights; and what they give, in plain numpy.

One row, all tokens at once, no cache: what is obviously right, and slow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tests.families.checkpoint import write_arrays

Arrays = dict[str, np.ndarray]
EXPERTS = 8
WIDTH, INNER, EXPERT = 64, 128, 32


@dataclass(frozen=True)
class PublishedHead:
    """family: of `tests.families`. inside: its tensors can stand in the model's own checkpoint,
    where the library drops them; otherwise they have a folder of their own.
    """

    family: str
    prefix: str
    inside: bool
    tensors: Callable[[np.random.Generator], Arrays]
    give: Callable[[Arrays, np.ndarray, np.ndarray, dict[str, Any]], tuple[np.ndarray, np.ndarray]]

    def write(self, path: Path, tensors: Arrays) -> None:
        arrays = {f"{self.prefix}{name}": mx.array(array) for name, array in tensors.items()}
        write_arrays(path, arrays)


def _matrix(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def _norm(rng: np.random.Generator, width: int) -> np.ndarray:
    return (1 + 0.1 * rng.standard_normal(width)).astype(np.float32)


def _linear(tensors: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    return x @ tensors[f"{name}.weight"].T


def _normed(tensors: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    scale = np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return x / scale * tensors[f"{name}.weight"]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _softmax(x: np.ndarray) -> np.ndarray:
    high = np.exp(x - x.max(-1, keepdims=True))
    return high / high.sum(-1, keepdims=True)


def _turned(x: np.ndarray, dims: int, paired: bool) -> np.ndarray:
    """The first `dims` of [heads, T, D] by their position: halves, or neighbours as pairs."""
    angles = np.arange(x.shape[1])[:, None] * 10000.0 ** (-np.arange(0, dims, 2) / dims)
    cos, sin = np.cos(angles), np.sin(angles)
    out = x.copy()
    if paired:
        first, second = x[..., 0:dims:2], x[..., 1:dims:2]
        out[..., 0:dims:2] = first * cos - second * sin
        out[..., 1:dims:2] = first * sin + second * cos
    else:
        first, second = x[..., : dims // 2], x[..., dims // 2 : dims]
        out[..., : dims // 2] = first * cos - second * sin
        out[..., dims // 2 : dims] = second * cos + first * sin
    return out


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """[heads, T, D], each over itself and what stands before it; to [T, heads * D]."""
    k, v = (np.repeat(x, q.shape[0] // x.shape[0], axis=0) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(q.shape[1], dtype=bool), scores, -np.inf)
    return (_softmax(scores) @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)


def _heads(x: np.ndarray, count: int) -> np.ndarray:
    return x.reshape(len(x), count, -1).transpose(1, 0, 2)


def _gated_mlp(tensors: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    gate = _linear(tensors, f"{name}.gate_proj", x)
    return _linear(
        tensors, f"{name}.down_proj", gate * _sigmoid(gate) * _linear(tensors, f"{name}.up_proj", x)
    )


def _mlp_tensors(rng: np.random.Generator, name: str, inner: int) -> Arrays:
    return {
        f"{name}.gate_proj.weight": _matrix(rng, inner, WIDTH),
        f"{name}.up_proj.weight": _matrix(rng, inner, WIDTH),
        f"{name}.down_proj.weight": _matrix(rng, WIDTH, inner),
    }


def _layer_norms(rng: np.random.Generator, name: str) -> Arrays:
    return {
        f"{name}input_layernorm.weight": _norm(rng, WIDTH),
        f"{name}post_attention_layernorm.weight": _norm(rng, WIDTH),
    }


def _mixed(tensors: Arrays, name: str, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """weights: [T, experts], most of them zero."""
    each = [_gated_mlp(tensors, f"{name}.experts.{at}", x) for at in range(EXPERTS)]
    return np.einsum("te,etd->td", weights, np.stack(each))


def _chosen(scores: np.ndarray, by: np.ndarray, count: int = 2) -> np.ndarray:
    """Scores of the best by another measure, as shares of one; zero for others."""
    best = np.argsort(-by, axis=-1)[:, :count]
    kept = np.zeros_like(scores)
    np.put_along_axis(kept, best, np.take_along_axis(scores, best, -1), -1)
    return kept / kept.sum(-1, keepdims=True)


# -- Qwen3.5 and Qwen3-Next ---------------------------------------------------------------------


def _qwen(head_dim: int, experts: str = "") -> Callable[[np.random.Generator], Arrays]:
    """experts: none, "fused" as Qwen3.5 has them, or "apart" as Qwen3-Next has."""

    def made(rng: np.random.Generator) -> Arrays:
        layer = "layers.0."
        tensors = {
            "fc.weight": _matrix(rng, WIDTH, 2 * WIDTH),
            "pre_fc_norm_embedding.weight": _norm(rng, WIDTH),
            "pre_fc_norm_hidden.weight": _norm(rng, WIDTH),
            "norm.weight": _norm(rng, WIDTH),
            **_layer_norms(rng, layer),
            f"{layer}self_attn.q_proj.weight": _matrix(rng, 4 * 2 * head_dim, WIDTH),
            f"{layer}self_attn.k_proj.weight": _matrix(rng, 2 * head_dim, WIDTH),
            f"{layer}self_attn.v_proj.weight": _matrix(rng, 2 * head_dim, WIDTH),
            f"{layer}self_attn.o_proj.weight": _matrix(rng, WIDTH, 4 * head_dim),
            f"{layer}self_attn.q_norm.weight": _norm(rng, head_dim),
            f"{layer}self_attn.k_norm.weight": _norm(rng, head_dim),
        }
        mlp = f"{layer}mlp"
        if not experts:
            return tensors | _mlp_tensors(rng, mlp, INNER)
        for at in range(EXPERTS):
            tensors |= _mlp_tensors(rng, f"{mlp}.experts.{at}", EXPERT)
        tensors |= _mlp_tensors(rng, f"{mlp}.shared_expert", EXPERT)
        tensors[f"{mlp}.gate.weight"] = _matrix(rng, EXPERTS, WIDTH)
        tensors[f"{mlp}.shared_expert_gate.weight"] = _matrix(rng, 1, WIDTH)
        return tensors

    return made


def fused(tensors: Arrays) -> Arrays:
    """Experts as Qwen3.5 publishes them: two tensors for all."""
    kept = {name: array for name, array in tensors.items() if ".experts." not in name}
    mlp = "layers.0.mlp.experts"

    def stacked(what: str) -> np.ndarray:
        return np.stack([tensors[f"{mlp}.{at}.{what}.weight"] for at in range(EXPERTS)])

    both = np.concatenate([stacked("gate_proj"), stacked("up_proj")], axis=1)
    return kept | {f"{mlp}.gate_up_proj": both, f"{mlp}.down_proj": stacked("down_proj")}


def _qwen_gives(
    tensors: Arrays, hidden: np.ndarray, embedded: np.ndarray, config: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    layer = "layers.0."
    x = _linear(tensors, "fc", _both(tensors, "pre_fc_norm_", embedded, hidden))
    normed = _normed(tensors, f"{layer}input_layernorm", x)
    attention = f"{layer}self_attn"
    q, gate = np.split(_heads(_linear(tensors, f"{attention}.q_proj", normed), 4), 2, axis=-1)
    k = _heads(_linear(tensors, f"{attention}.k_proj", normed), 2)
    v = _heads(_linear(tensors, f"{attention}.v_proj", normed), 2)
    dims = q.shape[-1] // 4
    q = _turned(_normed(tensors, f"{attention}.q_norm", q), dims, paired=False)
    k = _turned(_normed(tensors, f"{attention}.k_norm", k), dims, paired=False)
    out = _attended(q, k, v) * _sigmoid(gate.transpose(1, 0, 2).reshape(len(x), -1))
    x = x + _linear(tensors, f"{attention}.o_proj", out)
    normed, mlp = _normed(tensors, f"{layer}post_attention_layernorm", x), f"{layer}mlp"
    if f"{mlp}.gate.weight" not in tensors:
        x = x + _gated_mlp(tensors, mlp, normed)
    else:
        scores = _softmax(_linear(tensors, f"{mlp}.gate", normed))
        shared = _sigmoid(_linear(tensors, f"{mlp}.shared_expert_gate", normed))
        x = x + _mixed(tensors, mlp, normed, _chosen(scores, scores))
        x = x + shared * _gated_mlp(tensors, f"{mlp}.shared_expert", normed)
    out = _normed(tensors, "norm", x)
    return out, out


def _both(tensors: Arrays, norms: str, embedded: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    e, h = ("embedding", "hidden") if norms else ("enorm", "hnorm")
    normed = _normed(tensors, f"{norms}{e}", embedded), _normed(tensors, f"{norms}{h}", hidden)
    return np.concatenate(normed, axis=-1)


# -- DeepSeek V3 and GLM 4.5 --------------------------------------------------------------------


def _routed(rng: np.random.Generator) -> Arrays:
    tensors = {
        "enorm.weight": _norm(rng, WIDTH),
        "hnorm.weight": _norm(rng, WIDTH),
        "eh_proj.weight": _matrix(rng, WIDTH, 2 * WIDTH),
        "shared_head.norm.weight": _norm(rng, WIDTH),
        **_layer_norms(rng, ""),
        "mlp.gate.weight": _matrix(rng, EXPERTS, WIDTH),
        "mlp.gate.e_score_correction_bias": 0.1 * rng.standard_normal(EXPERTS).astype(np.float32),
        **_mlp_tensors(rng, "mlp.shared_experts", EXPERT),
    }
    for at in range(EXPERTS):
        tensors |= _mlp_tensors(rng, f"mlp.experts.{at}", EXPERT)
    return tensors


def _latent(rng: np.random.Generator) -> Arrays:
    return {
        **_routed(rng),
        "self_attn.q_a_proj.weight": _matrix(rng, 32, WIDTH),
        "self_attn.q_a_layernorm.weight": _norm(rng, 32),
        "self_attn.q_b_proj.weight": _matrix(rng, 4 * 24, 32),
        "self_attn.kv_a_proj_with_mqa.weight": _matrix(rng, 32 + 8, WIDTH),
        "self_attn.kv_a_layernorm.weight": _norm(rng, 32),
        "self_attn.kv_b_proj.weight": _matrix(rng, 4 * 32, 32),
        "self_attn.o_proj.weight": _matrix(rng, WIDTH, 4 * 16),
    }


def _grouped(rng: np.random.Generator) -> Arrays:
    return {
        **_routed(rng),
        "self_attn.q_proj.weight": _matrix(rng, 4 * 16, WIDTH),
        "self_attn.k_proj.weight": _matrix(rng, 2 * 16, WIDTH),
        "self_attn.v_proj.weight": _matrix(rng, 2 * 16, WIDTH),
        "self_attn.o_proj.weight": _matrix(rng, WIDTH, 4 * 16),
        "self_attn.q_norm.weight": _norm(rng, 16),
        "self_attn.k_norm.weight": _norm(rng, 16),
    }


def _latent_attention(tensors: Arrays, x: np.ndarray) -> np.ndarray:
    """Keys and values of every head, from the latent that all share."""
    q = _linear(tensors, "self_attn.q_a_proj", x)
    q = _linear(tensors, "self_attn.q_b_proj", _normed(tensors, "self_attn.q_a_layernorm", q))
    plain, turning = np.split(_heads(q, 4), [16], axis=-1)
    latent, shared = np.split(_linear(tensors, "self_attn.kv_a_proj_with_mqa", x), [32], axis=-1)
    latent = _normed(tensors, "self_attn.kv_a_layernorm", latent)
    k, v = np.split(_heads(_linear(tensors, "self_attn.kv_b_proj", latent), 4), 2, axis=-1)
    shared = np.repeat(_turned(shared[None], 8, paired=True), 4, axis=0)
    q = np.concatenate([plain, _turned(turning, 8, paired=True)], axis=-1)
    return _linear(
        tensors, "self_attn.o_proj", _attended(q, np.concatenate([k, shared], axis=-1), v)
    )


def _grouped_attention(tensors: Arrays, x: np.ndarray) -> np.ndarray:
    q = _normed(tensors, "self_attn.q_norm", _heads(_linear(tensors, "self_attn.q_proj", x), 4))
    k = _normed(tensors, "self_attn.k_norm", _heads(_linear(tensors, "self_attn.k_proj", x), 2))
    v = _heads(_linear(tensors, "self_attn.v_proj", x), 2)
    out = _attended(_turned(q, 8, paired=False), _turned(k, 8, paired=False), v)
    return _linear(tensors, "self_attn.o_proj", out)


def _deepseek_gives(
    tensors: Arrays, hidden: np.ndarray, embedded: np.ndarray, config: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    x = _linear(tensors, "eh_proj", _both(tensors, "", embedded, hidden))
    latent = "self_attn.kv_b_proj.weight" in tensors
    attention = _latent_attention if latent else _grouped_attention
    x = x + attention(tensors, _normed(tensors, "input_layernorm", x))
    normed = _normed(tensors, "post_attention_layernorm", x)
    scores = _sigmoid(_linear(tensors, "mlp.gate", normed))
    by = scores + tensors["mlp.gate.e_score_correction_bias"]
    groups = by.reshape(len(x), 2, -1)  # of which the better one is chosen from
    best = np.sort(groups, axis=-1)[..., -2:].sum(-1).argmax(-1)
    by = np.where(np.arange(2)[None, :, None] == best[:, None, None], groups, -np.inf)
    x = x + _mixed(tensors, "mlp", normed, _chosen(scores, by.reshape(len(x), -1)))
    x = x + _gated_mlp(tensors, "mlp.shared_experts", normed)
    return x, _normed(tensors, "shared_head.norm", x)


HEADS = {
    head.family: head
    for head in (
        PublishedHead("qwen3_5", "mtp.", True, _qwen(16), _qwen_gives),
        PublishedHead("qwen3_5_vl", "mtp.", True, _qwen(32), _qwen_gives),
        PublishedHead("qwen3_5_moe", "mtp.", True, _qwen(16, "apart"), _qwen_gives),
        PublishedHead("qwen3_next", "mtp.", False, _qwen(16, "apart"), _qwen_gives),
        PublishedHead("glm4_moe", "model.layers.2.", True, _grouped, _deepseek_gives),
        PublishedHead("glm4_moe_lite", "model.layers.2.", True, _latent, _deepseek_gives),
        PublishedHead("deepseek_v3", "model.layers.4.", False, _latent, _deepseek_gives),
    )
}
