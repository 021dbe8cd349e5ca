"""Gemma: full and window layers; the placeholder grows begin and end marks when it expands.

Gemma 3 resizes every image to one square. Gemma 4 fills a budget of tokens, so only the
aspect ratio changes their number.
"""

from typing import Any, Literal

from .checkpoint import VOCAB
from .text import BASE, FULL, SLIDING, WINDOW
from .vision_family import PIXELS, TOWER, VisionFamily, token_id

GEMMA3_SPECIAL = ("<start_of_image>", "<end_of_image>", "<image_soft_token>")
GEMMA4_SPECIAL = (
    "<|image>",
    "<image|>",
    "<|image|>",
    "<|video|>",
    "<|audio>",
    "<audio|>",
    "<|audio|>",
)

GEMMA4_NAMED = {
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "image_token": "<|image|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
    "audio_token": "<|audio|>",
}
GEMMA4_IDS = {
    f"{name}_id": token_id(GEMMA4_SPECIAL, token)
    for name, token in {**GEMMA4_NAMED, "video_token": "<|video|>"}.items()
}
GEMMA4_TEXT: dict[str, Any] = {
    **BASE,
    "model_type": "gemma4_text",
    "tie_word_embeddings": True,
    "sliding_window": WINDOW,
    "global_head_dim": 32,
    "num_global_key_value_heads": 2,
    "rope_parameters": {
        FULL: {
            "rope_type": "proportional",
            "rope_theta": 1000000.0,
            "partial_rotary_factor": 0.25,
        },
        SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
    },
}


def _gemma4(
    name: str,
    *,
    seed: int,
    spread: float,
    cuts: Literal["exact", "refused"] = "exact",
    **text: Any,
) -> VisionFamily:
    text_config = {**GEMMA4_TEXT, **text}
    return VisionFamily(
        name=name,
        kinds=("kv", "window"),
        seed=seed,
        spread=spread,
        config={
            "model_type": "gemma4",
            "vocab_size": VOCAB,
            "hidden_size": BASE["hidden_size"],
            "pad_token_id": BASE["pad_token_id"],
            "tie_word_embeddings": True,
            **GEMMA4_IDS,
            "vision_soft_tokens_per_image": 12,
            "text_config": text_config,
            "vision_config": {
                **TOWER,
                "model_type": "gemma4_vision",
                "num_key_value_heads": 2,
                "head_dim": 16,
                "global_head_dim": 16,
                "pooling_kernel_size": 2,
                "position_embedding_size": 32,
                "default_output_length": 12,
            },
            "audio_config": None,
        },
        placeholder="<|image|>",
        image_token="<|image|>",
        special=GEMMA4_SPECIAL,
        named=GEMMA4_NAMED,
        files={
            "processor_config.json": {
                "processor_class": "Gemma4Processor",
                "image_processor": {
                    "patch_size": 8,
                    "max_soft_tokens": 12,
                    "pooling_kernel_size": 2,
                },
            }
        },
        image_tokens=(9, 12, 8),
        cuts=cuts,
    )


GEMMA = (
    VisionFamily(
        name="gemma3_vl",
        kinds=("kv", "window"),
        seed=1,
        spread=1.0,
        config={
            "model_type": "gemma3",
            "vocab_size": VOCAB,
            "hidden_size": BASE["hidden_size"],
            "pad_token_id": BASE["pad_token_id"],
            "tie_word_embeddings": True,
            "boi_token_index": token_id(GEMMA3_SPECIAL, "<start_of_image>"),
            "eoi_token_index": token_id(GEMMA3_SPECIAL, "<end_of_image>"),
            "image_token_index": token_id(GEMMA3_SPECIAL, "<image_soft_token>"),
            "mm_tokens_per_image": 9,
            "text_config": {
                **BASE,
                "model_type": "gemma3_text",
                "tie_word_embeddings": True,
                "query_pre_attn_scalar": 16,
                "sliding_window": WINDOW,
                "sliding_window_pattern": 2,
                "layer_types": [SLIDING, FULL] * 2,
                "rope_theta": 1000000.0,
                "rope_global_base_freq": 1000000.0,
                "rope_local_base_freq": 10000.0,
                "mm_tokens_per_image": 9,  # where mlx-vlm reads it
            },
            "vision_config": {**TOWER, "model_type": "siglip_vision_model", "image_size": 48},
        },
        placeholder="<start_of_image>",
        image_token="<image_soft_token>",
        special=GEMMA3_SPECIAL,
        named={
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
            "image_token": "<image_soft_token>",
        },
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "image_processor_type": "Gemma3ImageProcessor",
                "size": {"height": 48, "width": 48},
            },
            "processor_config.json": {"image_seq_length": 9},
        },
        image_tokens=(9, 9, 9),
    ),
    _gemma4(
        "gemma4_vl",
        seed=2,
        spread=1.0,
        num_hidden_layers=8,
        num_kv_shared_layers=4,
        layer_types=[SLIDING, FULL] * 4,
        intermediate_size=64,
        hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=VOCAB,
    ),
    _gemma4(
        "gemma4_bidir",
        seed=3,
        spread=0.75,
        cuts="refused",
        num_kv_shared_layers=0,
        layer_types=[SLIDING, FULL] * 2,
        hidden_size_per_layer_input=0,
        attention_k_eq_v=True,
        use_bidirectional_attention="vision",
    ),
    VisionFamily(
        name="gemma4_unified",
        kinds=("kv", "window"),
        seed=1,
        spread=0.75,
        config={
            "model_type": "gemma4_unified",
            "vocab_size": VOCAB,
            "hidden_size": BASE["hidden_size"],
            "pad_token_id": BASE["pad_token_id"],
            "tie_word_embeddings": True,
            **GEMMA4_IDS,
            "text_config": {
                **GEMMA4_TEXT,
                "model_type": "gemma4_unified_text",
                "layer_types": [SLIDING, FULL] * 2,
                "num_kv_shared_layers": 0,
                "hidden_size_per_layer_input": 0,
                "attention_k_eq_v": True,
                "use_bidirectional_attention": "vision",
            },
            "vision_config": {
                "model_type": "gemma4_unified_vision",
                "patch_size": 16,  # this and the next two are all that its processor knows
                "pooling_kernel_size": 3,
                "num_soft_tokens": 280,
                "model_patch_size": 48,
                "mm_embed_dim": 32,
                "mm_posemb_size": 280,
                "output_proj_dims": 32,
            },
            "audio_config": None,
        },
        placeholder="<|image|>",
        image_token="<|image|>",
        special=GEMMA4_SPECIAL,
        named=GEMMA4_NAMED,
        files={"processor_config.json": {"processor_class": "Gemma4UnifiedProcessor"}},
        image_tokens=(256, 266, 260),
        cuts="refused",
    ),
)
