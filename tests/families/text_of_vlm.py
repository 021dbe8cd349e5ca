"""Text families that only mlx-vlm has, of plain, sliding, recurrent and latent layers."""

from .checkpoint import VOCAB
from .config_fragments import (
    BASE,
    EXPERTS,
    FULL,
    LATENT,
    LOCAL,
    ROUTED,
    SLIDING,
    TIED,
    WINDOW,
    Config,
    family,
    plain,
)
from .family import Family
from .text_hybrid import QWEN3_5
from .text_latent import LONGCAT

# Its rotary positions have three parts, also where there is no image.
QWEN3_5_TEXT: Config = {
    **QWEN3_5,
    "rope_parameters": {
        "type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [2, 1, 1],
    },
}

_TOWER: Config = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
}

OF_VLM: tuple[Family, ...] = (
    family("qwen3_5_text", "kv recurrent", QWEN3_5_TEXT, library="mlx_vlm"),
    family(
        "qwen3_5_moe_text",
        "kv recurrent",
        QWEN3_5_TEXT,
        EXPERTS,
        library="mlx_vlm",
        shared_expert_intermediate_size=32,
    ),
    family(
        "cohere2_moe",
        "kv window",
        TIED,
        library="mlx_vlm",
        intermediate_size=32,
        prefix_dense_intermediate_size=128,
        first_k_dense_replace=1,
        num_experts=8,
        num_experts_per_tok=2,
        num_shared_experts=1,
        layer_types=[FULL, SLIDING] * 2,
        sliding_window=WINDOW,
        logit_scale=1.0,
    ),
    family(
        "longcat_flash_sparse",
        "composite recurrent",
        LONGCAT,
        library="mlx_vlm",
        oe_vocab_size_ratio=2,
        oe_neighbor_num=3,
        oe_split_num=2,
        index_n_heads=8,
        index_head_dim=16,
        index_topk=24,
        index_init_tokens=2,
        index_local_tokens=4,
    ),
    plain("k2_horizon", library="mlx_vlm"),
    family(
        "kolibri1",
        "kv window",
        LOCAL,
        EXPERTS,
        library="mlx_vlm",
        shared_expert_intermediate_size=32,
    ),
    family(
        "flint",
        "kv window",
        EXPERTS,
        LOCAL,
        library="mlx_vlm",
        no_rope_layer_indices=[1],
        mlp_only_layers=[0],
        shared_expert_intermediate_size=32,
    ),
    plain(
        "limite",
        TIED,
        library="mlx_vlm",
        seed=3,
        ve_dim=16,
        ve_layers=[0, 1],
        attn_gate_channels=16,
        xsa_layers=[0, 1],
        global_layers=[1],
        sliding_window=16,
        rope_n_pairs=4,
        mudd_inter=8,
        mudd_layers=[0, 1],
        mudd_tap_idx={"0": [0], "1": [0, 1]},
        softcap_logits={"kind": "sigmoid", "a": 30.0, "b": 0.0, "c": 8.0},
    ),
    plain("xing4_0", LATENT, ROUTED, library="mlx_vlm", hc_mult=2),
    # Bushel gives it no pictures; without them it is a plain model with weights that nobody reads.
    family(
        "molmo_point",
        "kv",
        library="mlx_vlm",
        text_config={**BASE, "vocab_size": VOCAB - 8, "additional_vocab_size": 8},
        vision_config={**_TOWER, "num_hidden_layers": 2},
        adapter_config={**_TOWER, "text_hidden_size": BASE["hidden_size"], "vit_layers": [-1, -2]},
        patch_embed_dim=32,
    ),
    family("z1t", "recurrent", library="mlx_vlm", max_position_embeddings=512, aft_ksize=8, seed=1),
)
