"""Families that keep pools of tokens beside their keys: compressed ones, and an index over them.

Sizes are such that prompts of 1 to 100 tokens, and replies of 24, lie on both sides of them: pools
of four, windows of 16, and an index that leaves entries out after 16 or 28 tokens. Of deepseek_v4,
whose other pools are of 128 always, two prompts are longer. Eight heads of
an index: with two, many entries have the same score, which is none.
"""

from .checkpoint import VOCAB
from .config_fragments import FULL, LINEAR, WINDOW
from .text import BASE
from .vision_family import VisionFamily, token_id
from .vision_glm import GLM_SPECIAL
from .vision_grid import GRID_TOWER

DEEPSEEK_IMAGE = "<\uff5cdeepseek_image\uff5c>"

_GLM_IDS = {
    f"{kind}{part}_token_id": token_id(GLM_SPECIAL, token)
    for kind in ("image", "video")
    for part, token in (
        ("", f"<|{kind}|>"),
        ("_start", f"<|begin_of_{kind}|>"),
        ("_end", f"<|end_of_{kind}|>"),
    )
}
POOLS = (
    VisionFamily(
        name="glm5_next",
        kinds=("recurrent", "composite"),
        config={
            "model_type": "glm5_next",
            "tie_word_embeddings": False,
            **_GLM_IDS,
            "text_config": {
                **BASE,
                "model_type": "glm5_next_text",
                "num_hidden_layers": 5,
                "layer_types": [LINEAR, FULL, FULL, LINEAR, FULL],
                "indexer_types": ["full", "full", "shared", "full", "full"],
                "num_key_value_heads": 4,
                "kv_lora_rank": 32,
                "q_lora_rank": 32,
                "qk_rope_head_dim": 0,
                "qk_nope_head_dim": 16,
                "v_head_dim": 16,
                "first_k_dense_replace": 1,
                "moe_intermediate_size": 32,
                "n_routed_experts": 8,
                "num_experts_per_tok": 2,
                "index_topk": 16,
                "index_kpool": 4,
                "index_head_dim": 16,
                "index_n_heads": 8,
                "linear_head_dim": 32,
                "linear_num_heads": 2,
                "linear_conv_kernel_dim": 4,
                "hc_mult": 2,
                "hc_sinkhorn_iters": 2,
            },
            "vision_config": {
                **GRID_TOWER,
                "model_type": "glm5_next_vision",
                "projection_intermediate_size": 64,
                "patch_size": 14,  # mlx-vlm's processor does not read its settings
            },
        },
        placeholder="<|begin_of_image|><|image|><|end_of_image|>",
        image_token="<|image|>",
        special=GLM_SPECIAL,
        files={},
        image_tokens=(16, 20, 20),
    ),
    VisionFamily(
        name="deepseek_v4",
        kinds=("window", "composite"),
        config={
            **BASE,
            "model_type": "deepseek_v4",
            "vocab_size": VOCAB,
            "num_hidden_layers": 5,
            "compress_ratios": [0, 4, 128, 4, 0],
            "num_key_value_heads": 1,
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "num_hash_layers": 1,
            "q_lora_rank": 32,
            "qk_rope_head_dim": 8,
            "o_groups": 2,
            "o_lora_rank": 16,
            "sliding_window": WINDOW,
            "index_n_heads": 8,
            "index_head_dim": 16,
            "index_topk": 6,
            "hc_mult": 2,
            "hc_sinkhorn_iters": 2,
            "vision_n_layers": 2,
            "vision_dim": 32,
            "vision_n_heads": 2,
            "vision_inter_dim": 64,
            "vision_patch_size": 8,
            "vision_downsample_ratio": 2,
            "vision_max_n_token": 64,
            "vision_min_pixels": 32 * 32,
        },
        placeholder=DEEPSEEK_IMAGE,
        image_token="",
        special=(DEEPSEEK_IMAGE,),
        files={},
        image_tokens=(4, 12, 24),
        cuts="refused",
        placed=True,
        whole_passes="the first pool of a call does not see the one before it",
        pool=128,
    ),
)
