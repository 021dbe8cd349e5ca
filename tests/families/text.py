"""Text checkpoints: every cache kind mlx-lm has, two layers or more of each kind."""

from importlib import import_module
from pathlib import Path
from typing import Any

from .checkpoint import (
    BOS,
    IM_END,
    PAD,
    VOCAB,
    randomise,
    write_config,
    write_generation_config,
    write_tokenizer,
    write_weights,
)
from .family import Family

WINDOW = 16
FULL, SLIDING = "full_attention", "sliding_attention"
LINEAR, CONV = "linear_attention", "conv"

# Linear and state-space heads are 32 wide because the Metal kernels divide them by 32.
BASE: dict[str, Any] = {
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

EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
}

DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}

QWEN3_5: dict[str, Any] = {
    **DELTA,
    "full_attention_interval": 2,
    "layer_types": [LINEAR, FULL] * 2,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
    },
}

MLA: dict[str, Any] = {
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}


def _family(name: str, kinds: str, *, seed: int = 0, spread: float = 2.0, **config: Any) -> Family:
    config = {"model_type": name, **BASE, **config}
    return Family(name, config, tuple(kinds.split()), seed, spread)


_FAMILIES = (
    _family("llama", "kv"),
    _family(
        "llama_sliding",
        "kv window",
        model_type="llama",
        layer_types=[SLIDING, FULL] * 2,
        sliding_window=WINDOW,
    ),
    _family("qwen3", "kv", seed=1, tie_word_embeddings=True),
    _family("qwen3_moe", "kv", **EXPERTS, mlp_only_layers=[0, 1]),
    _family(
        "qwen3_next",
        "kv recurrent",
        **EXPERTS,
        **DELTA,
        mlp_only_layers=[0, 1],
        shared_expert_intermediate_size=32,
        partial_rotary_factor=0.25,
        full_attention_interval=2,
        layer_types=[LINEAR, FULL] * 2,
    ),
    _family("qwen3_5", "kv recurrent", **QWEN3_5, tie_word_embeddings=True),
    _family(
        "qwen3_5_moe",
        "kv recurrent",
        **QWEN3_5,
        **EXPERTS,
        shared_expert_intermediate_size=32,
    ),
    _family(
        "gemma3_text",
        "kv window",
        seed=1,
        spread=1.0,
        num_hidden_layers=6,
        query_pre_attn_scalar=16,
        sliding_window=WINDOW,
        sliding_window_pattern=3,
        rope_local_base_freq=10000.0,
        tie_word_embeddings=True,
    ),
    _family(
        "gemma4_text",
        "kv window",
        num_hidden_layers=8,
        num_kv_shared_layers=4,
        layer_types=[SLIDING, FULL] * 4,
        sliding_window=WINDOW,
        intermediate_size=64,
        global_head_dim=32,
        num_global_key_value_heads=2,
        hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=VOCAB,
        rope_parameters={
            FULL: {
                "rope_type": "proportional",
                "rope_theta": 1000000.0,
                "partial_rotary_factor": 0.25,
            },
            SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
        },
        tie_word_embeddings=True,
    ),
    _family(
        "gpt_oss",
        "kv window",
        num_local_experts=8,
        num_experts_per_tok=2,
        intermediate_size=32,
        layer_types=[SLIDING, FULL] * 2,
        sliding_window=WINDOW,
    ),
    _family(
        "mamba2",
        "recurrent",
        num_heads=4,
        head_dim=32,
        state_size=32,
        expand=2,
        n_groups=2,
        conv_kernel=4,
        use_bias=False,
        use_conv_bias=True,
        layer_norm_epsilon=1e-6,
        time_step_limit=[0.0, 100.0],
        time_step_rank=4,
    ),
    _family(
        "jamba",
        "kv recurrent",
        attn_layer_offset=1,
        attn_layer_period=2,
        expert_layer_offset=0,
        expert_layer_period=3,
        num_experts=4,
        num_experts_per_tok=2,
        intermediate_size=64,
        mamba_d_conv=4,
        mamba_d_state=16,
        mamba_expand=2,
        mamba_dt_rank=4,
    ),
    _family(
        "nemotron_h",
        "kv recurrent",
        hybrid_override_pattern="M*-EM*-E",
        num_hidden_layers=8,
        attention_bias=False,
        mamba_num_heads=4,
        mamba_head_dim=32,
        mamba_proj_bias=False,
        ssm_state_size=32,
        conv_kernel=4,
        n_groups=2,
        mlp_bias=False,
        layer_norm_epsilon=1e-6,
        use_bias=False,
        use_conv_bias=True,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        moe_shared_expert_intermediate_size=32,
        n_group=2,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
    ),
    _family(
        "falcon_h1",
        "composite",
        num_hidden_layers=3,
        mamba_d_ssm=128,
        mamba_n_heads=4,
        mamba_d_head=32,
        mamba_d_state=32,
        mamba_n_groups=2,
        mamba_d_conv=4,
    ),
    _family(
        "lfm2",
        "kv recurrent",
        layer_types=[CONV, FULL] * 2,
        norm_eps=1e-6,
        conv_bias=False,
        conv_L_cache=3,
        block_dim=64,
        block_ff_dim=128,
        block_multiple_of=32,
        block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=False,
        tie_word_embeddings=True,
    ),
    _family(
        "olmo_hybrid",
        "kv recurrent",
        **DELTA,
        layer_types=[LINEAR, FULL] * 2,
        linear_allow_neg_eigval=True,
        attention_bias=False,
    ),
    _family(
        "rwkv7",
        "recurrent",
        head_dim=32,
        norm_eps=1e-5,
        a_low_rank_dim=8,
        v_low_rank_dim=8,
        gate_low_rank_dim=8,
        decay_low_rank_dim=8,
    ),
    _family(
        "recurrent_gemma",
        "window recurrent",
        spread=1.0,
        num_hidden_layers=6,
        block_types=["recurrent", "recurrent", "attention"],
        attention_window_size=WINDOW,
        attention_bias=False,
        conv1d_width=4,
        logits_soft_cap=30.0,
        tie_word_embeddings=True,
    ),
    _family(
        "deepseek_v3",
        "kv",
        **MLA,
        q_lora_rank=32,
        num_key_value_heads=4,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=2,
    ),
    _family(
        "kimi_linear",
        "kv recurrent",
        **MLA,
        model_max_length=4096,
        linear_attn_config={
            "kda_layers": [1, 3],
            "full_attn_layers": [2, 4],
            "num_heads": 2,
            "head_dim": 32,
            "short_conv_kernel_size": 4,
        },
        num_experts=8,
        num_experts_per_token=2,
        num_shared_experts=1,
        moe_intermediate_size=32,
        first_k_dense_replace=2,
    ),
)

TEXT: dict[str, Family] = {family.name: family for family in _FAMILIES}


def build(name: str, path: Path) -> Path:
    """Write the checkpoint of family `name` into `path`, ready for `mlx_lm.load`."""
    family = TEXT[name]
    module = import_module(f"mlx_lm.models.{family.config['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(family.config))
    if family.config["tie_word_embeddings"]:
        # Gemma makes a head even when tied, and ties only if the checkpoint has none.
        model.pop("lm_head", None)
    randomise(model, family.seed, family.spread)
    write_weights(path, model)
    write_config(path, family.config)
    write_generation_config(path)
    write_tokenizer(path)
    return path
