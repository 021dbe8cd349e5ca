"""Families with latent attention, with an index beside their keys, or with state of their own."""

from .config_fragments import LATENT, ROUTED, TWO, WINDOW, YARN, Config, family, plain, wrapped
from .family import Family
from .text_attention import MINICPM

# Fewer tokens are attended to than there are, so that the index matters.
INDEX: Config = {"index_head_dim": 16, "index_n_heads": 2, "index_topk": 16}

LONGCAT: Config = {
    **LATENT,
    "num_layers": 2,
    "ffn_hidden_size": 128,
    "expert_ffn_hidden_size": 32,
    "n_routed_experts": 8,
    "zero_expert_num": 4,
    "zero_expert_type": "identity",
    "moe_topk": 2,
    "routed_scaling_factor": 1.0,
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
    "attention_bias": False,
}

LATENTS: tuple[Family, ...] = (
    family("deepseek_v3", "kv", LATENT, ROUTED, first_k_dense_replace=2),
    plain("deepseek_v2", LATENT, ROUTED, topk_method="group_limited_greedy", rope_scaling=YARN),
    family("deepseek_v32", "composite", TWO, LATENT, ROUTED, INDEX),
    # Heads that the model does not round to eight bits: rounding would hide small differences.
    family(
        "deepseek_v41",
        "compressed",
        seed=2,
        head_dim=24,
        q_lora_rank=32,
        qk_rope_head_dim=8,
        o_groups=2,
        o_lora_rank=16,
        moe_intermediate_size=32,
        n_routed_experts=8,
        num_experts_per_tok=2,
        sliding_window=WINDOW,
        compress_ratios=[0, 4, 4, 2],
        kv_source_layer_ids=[1, 3],
        index_source_layer_ids=[1, 3],
        index_n_heads=2,
        index_head_dim=16,
        index_topk=8,
        hc_mult=2,
        hc_sinkhorn_iters=2,
    ),
    plain("glm4_moe_lite", LATENT, ROUTED),
    family(
        "glm_moe_dsa",
        "composite",
        TWO,
        LATENT,
        ROUTED,
        INDEX,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        moe_layer_freq=1,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        attention_bias=False,
    ),
    wrapped("kimi_k25", "kv", TWO, LATENT, ROUTED, model_type="deepseek_v3"),
    wrapped("kimi_vl-text", "kv", TWO, LATENT, ROUTED),
    family("longcat_flash", "composite", LONGCAT, attention_method="MLA"),
    family(
        "longcat_flash_ngram",
        "composite recurrent",
        LONGCAT,
        ngram_vocab_size_ratio=2,
        emb_neighbor_num=3,
        emb_split_num=2,
    ),
    plain(
        "minicpm3",
        LATENT,
        MINICPM,
        rope_scaling={
            "type": "longrope",
            "original_max_position_embeddings": 4096,
            "short_factor": [1.0] * 4,
            "long_factor": [1.0] * 4,
        },
    ),
    plain(
        "mistral4",
        LATENT,
        ROUTED,
        rope_parameters={**YARN, "rope_theta": 10000.0, "llama_4_scaling_beta": 0.1},
    ),
    plain("youtu_llm", LATENT),
)
