"""Families that mlx-lm has as well, and shows no pictures: Google's Gemma 3n, Moonshot's Kimi K3,
Meta's Muse.
"""

from typing import Any

from .checkpoint import VOCAB
from .config_fragments import KDA, LATENT, LOCAL
from .text import BASE
from .text_window import GEMMA3N
from .vision_family import PIXELS, VisionFamily, token_id

GEMMA3N_NAMED = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
    "boa_token": "<start_of_audio>",
    "eoa_token": "<end_of_audio>",
    "audio_token": "<audio_soft_token>",
}
GEMMA3N_SPECIAL = tuple(GEMMA3N_NAMED.values())
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
        name="gemma3n_vl",
        kinds=("kv", "window"),
        spread=1.0,
        config={
            "model_type": "gemma3n",
            "vocab_size": VOCAB,
            "hidden_size": BASE["hidden_size"],
            "tie_word_embeddings": True,
            "image_token_id": token_id(GEMMA3N_SPECIAL, "<image_soft_token>"),
            "image_token_index": token_id(GEMMA3N_SPECIAL, "<image_soft_token>"),
            "audio_token_id": token_id(GEMMA3N_SPECIAL, "<audio_soft_token>"),
            "vision_soft_tokens_per_image": 4,
            "text_config": {**BASE, **GEMMA3N, "intermediate_size": [64] * 8},
            # Ids behind these would be those of embeddings that no text has.
            "vision_config": {
                "model_type": "gemma3n_vision",
                "hidden_size": 32,
                "vocab_offset": VOCAB,
                "vocab_size": 1,
            },
            "audio_config": {
                "hidden_size": 32,
                "conf_num_attention_heads": 2,
                "conf_num_hidden_layers": 1,
                "sscp_conv_channel_size": [8, 4],
                "vocab_offset": VOCAB + 1,
                "vocab_size": 1,
            },
        },
        placeholder="<image_soft_token>",
        image_token="<image_soft_token>",
        special=GEMMA3N_SPECIAL,
        named=GEMMA3N_NAMED,
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "image_processor_type": "SiglipImageProcessor",
                "size": {"height": 64, "width": 64},
            },
            "processor_config.json": {"image_seq_length": 4},
        },
        image_tokens=(4, 4, 4),
    ),
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
