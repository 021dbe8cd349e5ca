"""Qwen and GLM: packed patches with a (t, h, w) grid, and positions of three axes.

Two by two patches of 8 pixels are merged into one image token.
"""

from typing import Any

from .checkpoint import VOCAB
from .text import BASE, DELTA, EXPERTS, FULL, LINEAR
from .vision_family import PIXELS, VisionFamily, token_id

GRID_TOWER: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": BASE["hidden_size"],
    "patch_size": 8,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "in_channels": 3,
}
GRID_PIXELS = {**PIXELS, "patch_size": 8, "temporal_patch_size": 2, "merge_size": 2}
QWEN_SPECIAL = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
QWEN_IDS = {
    "vision_start_token_id": token_id(QWEN_SPECIAL, "<|vision_start|>"),
    "vision_end_token_id": token_id(QWEN_SPECIAL, "<|vision_end|>"),
    "image_token_id": token_id(QWEN_SPECIAL, "<|image_pad|>"),
    "video_token_id": token_id(QWEN_SPECIAL, "<|video_pad|>"),
}


def _qwen(name: str, kinds: tuple[str, ...], config: dict[str, Any]) -> VisionFamily:
    return VisionFamily(
        name=name,
        kinds=kinds,
        config={**QWEN_IDS, **config},
        placeholder="<|vision_start|><|image_pad|><|vision_end|>",
        image_token="<|image_pad|>",
        special=QWEN_SPECIAL,
        files={
            "preprocessor_config.json": {
                **GRID_PIXELS,
                "image_processor_type": "Qwen2VLImageProcessor",
                "processor_class": "Qwen3VLProcessor",
                "min_pixels": 16 * 16,
                "max_pixels": 128 * 128,
            }
        },
        image_tokens=(4, 12, 24),
    )


def _qwen3_5(name: str, model_type: str, **text: Any) -> VisionFamily:
    text_config = {
        **BASE,
        **DELTA,
        "model_type": f"{model_type}_text",
        "head_dim": 32,
        "full_attention_interval": 2,
        "layer_types": [LINEAR, FULL] * 2,
        "rope_parameters": {
            "rope_type": "default",
            "mrope_section": [2, 1, 1],
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
        },
        **text,
    }
    tower = {**GRID_TOWER, "model_type": model_type, "num_position_embeddings": 36}
    return _qwen(
        name,
        ("kv", "recurrent"),
        {
            "model_type": model_type,
            "vocab_size": VOCAB,
            "tie_word_embeddings": text_config["tie_word_embeddings"],
            "text_config": text_config,
            "vision_config": {**tower, "deepstack_visual_indexes": []},
        },
    )


GLM_SPECIAL = (
    "<|begin_of_image|>",
    "<|end_of_image|>",
    "<|image|>",
    "<|begin_of_video|>",
    "<|end_of_video|>",
    "<|video|>",
    "<|begin_of_box|>",
    "<|end_of_box|>",
)

GRID = (
    _qwen3_5("qwen3_5_vl", "qwen3_5", tie_word_embeddings=True),
    _qwen3_5("qwen3_5_moe_vl", "qwen3_5_moe", **EXPERTS, shared_expert_intermediate_size=32),
    _qwen(
        "qwen2_5_vl",
        ("kv",),
        # mlx-vlm reads the text config from the root keys.
        {
            **BASE,
            "model_type": "qwen2_5_vl",
            "num_hidden_layers": 3,
            "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [4, 2, 2]},
            "vision_config": {
                **GRID_TOWER,
                "model_type": "qwen2_5_vl",
                "window_size": 32,
                "fullatt_block_indexes": [1],
            },
        },
    ),
    _qwen(
        "qwen3_vl",
        ("kv",),
        {
            "model_type": "qwen3_vl",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "text_config": {
                **BASE,
                "model_type": "qwen3_vl_text",
                "num_hidden_layers": 3,
                "rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2]},
            },
            "vision_config": {
                **GRID_TOWER,
                "model_type": "qwen3_vl",
                "num_position_embeddings": 36,
                "deepstack_visual_indexes": [0, 1],
            },
        },
    ),
    VisionFamily(
        name="glm4v",
        kinds=("kv",),
        seed=4,
        config={
            "model_type": "glm4v",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            # mlx-vlm counts images by the vision start token; GLM's own name for it is image start.
            "vision_start_token_id": token_id(GLM_SPECIAL, "<|begin_of_image|>"),
            "vision_end_token_id": token_id(GLM_SPECIAL, "<|end_of_image|>"),
            "image_start_token_id": token_id(GLM_SPECIAL, "<|begin_of_image|>"),
            "image_end_token_id": token_id(GLM_SPECIAL, "<|end_of_image|>"),
            "image_token_id": token_id(GLM_SPECIAL, "<|image|>"),
            "video_start_token_id": token_id(GLM_SPECIAL, "<|begin_of_video|>"),
            "video_end_token_id": token_id(GLM_SPECIAL, "<|end_of_video|>"),
            "video_token_id": token_id(GLM_SPECIAL, "<|video|>"),
            "text_config": {
                **BASE,
                "model_type": "glm4v_text",
                "num_hidden_layers": 3,
                "attention_bias": True,
                "partial_rotary_factor": 0.5,
                "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]},
            },
            "vision_config": {**GRID_TOWER, "model_type": "glm4v", "image_size": 48},
        },
        placeholder="<|begin_of_image|><|image|><|end_of_image|>",
        image_token="<|image|>",
        special=GLM_SPECIAL,
        files={
            "preprocessor_config.json": {
                **GRID_PIXELS,
                "image_processor_type": "Glm4vImageProcessor",
                "size": {"shortest_edge": 2 * 16 * 16, "longest_edge": 2 * 128 * 128},
            }
        },
        image_tokens=(4, 12, 24),
        cuts="wrong",  # later chunks count positions on from the whole prompt's delta
    ),
)
