"""Families that mlx-lm has as well, and shows no pictures: Moonshot's Kimi K3, Meta's Muse."""

from typing import Any

from .checkpoint import VOCAB
from .config_fragments import KDA, LATENT, LOCAL
from .text import BASE
from .vision_family import VisionFamily, token_id

KIMI_SPECIAL = ("<|media_begin|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>")
MUSE_SPECIAL = ("<|image_start|>", "<|patch|>", "<|image_end|>", "<|video|>")

KIMI_TOWER = {
    "patch_size": 14,
    "init_pos_emb_height": 6,
    "init_pos_emb_width": 6,
    "vt_num_attention_heads": 2,
    "vt_num_hidden_layers": 2,
    "vt_hidden_size": 32,
    "vt_intermediate_size": 64,
    "qkv_hidden_size": 32,
    "mm_hidden_size": 32,
    "text_hidden_size": 64,
}
# One layer sees its neighbours, and the last one the whole picture.
MUSE_TOWER: dict[str, Any] = {
    "model_type": "muse_glimmer_vision",
    "patch_size": 8,
    "pos_emb_height": 4,
    "pos_emb_width": 4,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
}
MUSE_TEXT: dict[str, Any] = {
    **BASE,
    **LOCAL,
    "model_type": "muse_glimmer_text",
    "post_norm_eps": 1e-6,
    "output_multiplier": 1.0,
    "final_logit_softcapping": 20.0,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "layer_rope_theta": [10000.0, 0] * 2,
}


SHARED = (
    VisionFamily(
        name="kimi_k3_vl",
        kinds=("kv", "recurrent"),
        config={
            "model_type": "kimi_k3",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "media_placeholder_token_id": token_id(KIMI_SPECIAL, "<|media_pad|>"),
            "text_config": {
                **BASE,
                **LATENT,
                **KDA,
                "model_type": "kimi_linear",
                "attn_res_block_size": 2,
                "mla_use_output_gate": True,
            },
            "vision_config": KIMI_TOWER,
        },
        placeholder="<|media_pad|>",
        image_token="<|media_pad|>",
        special=KIMI_SPECIAL,
        files={},
        image_tokens=(4, 6, 12),
    ),
    VisionFamily(
        name="muse_glimmer_vl",
        kinds=("kv", "window"),
        config={
            "model_type": "muse_glimmer",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_id": token_id(MUSE_SPECIAL, "<|patch|>"),
            "video_token_id": token_id(MUSE_SPECIAL, "<|video|>"),
            "out_hidden_size": 4 * MUSE_TOWER["hidden_size"],
            "projector_hidden_size": 64,
            "text_config": MUSE_TEXT,
            "vision_config": MUSE_TOWER,
        },
        placeholder="<|patch|>",
        image_token="<|patch|>",
        special=MUSE_SPECIAL,
        files={"processor_config.json": {"image_processor": {"patch_size": 8}}},
        image_tokens=(4, 12, 24),
    ),
)
