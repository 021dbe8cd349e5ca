"""What configs of text families have in common, as dicts to be merged."""

from dataclasses import replace
from typing import Any

from .checkpoint import BOS, IM_END, PAD, VOCAB
from .family import Family

Config = dict[str, Any]

WINDOW = 16
FULL, SLIDING = "full_attention", "sliding_attention"
LINEAR, CONV = "linear_attention", "conv"

# Linear and state-space heads are 32 wide because the Metal kernels divide them by 32.
BASE: Config = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": IM_END,
}

TWO: Config = {"num_hidden_layers": 2}
TIED: Config = {"tie_word_embeddings": True}
NO_BIAS: Config = {"attention_bias": False, "mlp_bias": False}

# Two layers of each, for families that mix them.
LOCAL: Config = {"layer_types": [SLIDING, FULL] * 2, "sliding_window": WINDOW}

ROPE_BY_TYPE: Config = {
    "rope_parameters": {
        FULL: {"rope_type": "default", "rope_theta": 1000000.0},
        SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
    }
}

# Positions beyond the first 16 are scaled, so that a wrong position is not the same for all.
SCALED_ROPE: Config = {
    "rope_theta": 10000.0,
    "llama_4_scaling_beta": 0.1,
    "original_max_position_embeddings": 16,
}

YARN: Config = {
    "type": "yarn",
    "factor": 2.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}

# Experts have three spellings.
EXPERTS: Config = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
}

ROUTED: Config = {
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
}

LOCAL_EXPERTS: Config = {
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "intermediate_size": 32,
}

BAILING: Config = {
    "num_experts": 8,
    "num_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "score_function": "sigmoid",
}

MULTIPLIERS: Config = {
    "logits_scaling": 1.0,
    "attention_multiplier": 0.25,
    "embedding_multiplier": 1.0,
    "residual_multiplier": 0.5,
}

DELTA: Config = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}

MLA: Config = {
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}

LATENT: Config = {**MLA, "q_lora_rank": 32, "num_key_value_heads": 4}

KDA: Config = {
    "linear_attn_config": {
        "kda_layers": [1, 3],
        "full_attn_layers": [2, 4],
        "num_heads": 2,
        "head_dim": 32,
        "short_conv_kernel_size": 4,
    },
    "num_experts": 8,
    "num_experts_per_token": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 2,
}

# Fields of `Family` that a table may set next to a config.
_OWN = ("seed", "spread", "single", "equal_chunks", "library", "packed")


def family(name: str, kinds: str, *parts: Config, **config: Any) -> Family:
    """A config of its own keys over those of `parts`, the last one first, over `BASE`."""
    own = {key: config.pop(key) for key in _OWN if key in config}
    merged: Config = {"model_type": name, **BASE}
    for part in (*parts, config):
        merged |= part
    return Family(name, merged, tuple(kinds.split()), **own)


def plain(name: str, *parts: Config, **config: Any) -> Family:
    """Two layers of attention that keep everything."""
    return family(name, "kv", TWO, *parts, **config)


def wrapped(
    name: str, kinds: str, *parts: Config, outer: Config | None = None, **config: Any
) -> Family:
    """A text model inside another, whose config is inside the other's.

    A name that ends in -text is that of the outer model, which exists with images as well.
    """
    inner = family(name, kinds, *parts, **config)
    ids = ("vocab_size", "tie_word_embeddings", "torch_dtype", "eos_token_id", "pad_token_id")
    whole = {key: inner.config[key] for key in ids} | (outer or {})
    whole["model_type"] = name.removesuffix("-text")
    return replace(inner, config={**whole, "text_config": inner.config})
