"""Images as crops beside the whole of them: InternVL, Llama 4, DeepSeek."""

from dataclasses import replace
from typing import Any

from .checkpoint import SPECIAL as COMMON
from .checkpoint import VOCAB
from .config_fragments import BASE, LATENT, ROUTED, WINDOW
from .vision_family import PIXELS, TOWER, VisionFamily, token_id
from .vision_tiles import INTERN_SPECIAL

LLAMA_SPECIAL = (
    "<|image_start|>",
    "<|image_end|>",
    "<|image|>",
    "<|patch|>",
    "<|tile_x_separator|>",
    "<|tile_y_separator|>",
)
# The processor adds those to the vocabulary that it does not find.
DEEPSEEK_SPECIAL = (
    "<image>",
    "<|ref|>",
    "<|/ref|>",
    "<|det|>",
    "<|/det|>",
    "<|grounding|>",
    "<|User|>",
    "<|Assistant|>",
)
DEEPSEEK_EXPERTS: dict[str, Any] = {**ROUTED, "topk_method": "greedy", "moe_layer_freq": 1}


def _ocr(
    name: str, image_tokens: int, input_dim: int, vision: dict[str, Any], **changed: Any
) -> VisionFamily:
    """Sizes of pixels, crops and the first half of the tower are the library's own."""
    family = VisionFamily(
        name=name,
        kinds=("kv",),
        config={
            "model_type": name,
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_index": token_id(DEEPSEEK_SPECIAL, "<image>"),
            "text_config": {
                **BASE,
                **DEEPSEEK_EXPERTS,
                "model_type": "deepseek_v2",
                "num_hidden_layers": 3,
                "qk_nope_head_dim": 0,
                "qk_rope_head_dim": 0,
                "q_lora_rank": None,
            },
            "vision_config": {"model_type": "vision", "layers": 2, **vision},
            "projector_config": {
                "projector_type": "linear",
                "input_dim": input_dim,
                "n_embed": BASE["hidden_size"],
            },
        },
        placeholder="<image>",
        image_token="<image>",
        special=DEEPSEEK_SPECIAL,
        files={
            "processor_config.json": {
                "processor_class": "DeepseekOCRProcessor",
                "candidate_resolutions": [[1024, 1024]],
                "patch_size": 16,
                "downsample_ratio": 4,
                "pad_token": COMMON[0],
            }
        },
        image_tokens=(image_tokens,) * 3,
        most_images=1,  # that the library sees
    )
    return replace(family, **changed)


CROPS = (
    VisionFamily(
        name="internvl",
        kinds=("kv",),
        config={
            "model_type": "internvl",
            "tie_word_embeddings": False,
            "image_token_id": token_id(INTERN_SPECIAL, "<IMG_CONTEXT>"),
            "max_dynamic_patch": 4,
            "downsample_ratio": 0.5,
            "text_config": {**BASE, "model_type": "qwen3", "num_hidden_layers": 3},
            "vision_config": {
                **TOWER,
                "model_type": "internvl_vision",
                "image_size": [32, 32],
                "patch_size": [8, 8],
                "use_qk_norm": True,
            },
        },
        placeholder="<IMG_CONTEXT>",
        image_token="<IMG_CONTEXT>",
        special=INTERN_SPECIAL,
        files={"processor_config.json": {"image_seq_length": 4}},
        image_tokens=(4, 20, 20),
    ),
    VisionFamily(
        name="llama4_vl",
        kinds=("chunked", "kv"),
        config={
            "model_type": "llama4",
            "tie_word_embeddings": False,
            "image_token_index": token_id(LLAMA_SPECIAL, "<|patch|>"),
            "text_config": {
                **BASE,
                "model_type": "llama4_text",
                "num_hidden_layers": 8,
                "attention_bias": False,
                "attention_chunk_size": WINDOW,
                "interleave_moe_layer_step": 4,
                "intermediate_size": 32,
                "intermediate_size_mlp": 64,
                "num_experts_per_tok": 1,
                "num_local_experts": 4,
                "rope_scaling": None,
                "use_qk_norm": True,
                "floor_scale": 8,
            },
            "vision_config": {
                **TOWER,
                "model_type": "llama4_vision_model",
                "intermediate_size": 128,  # what four patches of the tower make
                "image_size": 56,
                "patch_size": 14,  # mlx-vlm's processor knows no other
                "initializer_range": 0.02,
                "norm_eps": 1e-5,
                "pixel_shuffle_ratio": 0.5,
                "projector_dropout": 0.0,
                "projector_input_dim": 32,
                "projector_output_dim": 32,
                "rope_theta": 10000.0,
                "vision_feature_layer": -1,
                "vision_feature_select_strategy": "default",
                "vision_output_dim": 32,
            },
        },
        placeholder="<|image|>",
        image_token="<|patch|>",
        special=LLAMA_SPECIAL,
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "size": {"height": 56, "width": 56},
                "max_patches": 4,
            }
        },
        image_tokens=(4, 4, 4),
    ),
    VisionFamily(
        name="deepseek_vl_v2",
        kinds=("kv",),
        config={
            "model_type": "deepseek_vl_v2",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_index": token_id(DEEPSEEK_SPECIAL, "<image>"),
            "tile_tag": "2D",
            "global_view_pos": "head",
            "text_config": {
                **BASE,
                **LATENT,
                **DEEPSEEK_EXPERTS,
                "model_type": "deepseek_v2",
                "num_hidden_layers": 3,
            },
            "vision_config": {
                "model_type": "vision",
                "layers": 2,
                "width": 32,
                "intermediate_size": 64,
                "num_attention_heads": 2,
                "image_size": 32,
                "patch_size": 8,
                "mlp_ratio": 2.0,
            },
            "projector_config": {
                "projector_type": "downsample_mlp_gelu",
                "input_dim": 32,
                "n_embed": BASE["hidden_size"],
                "depth": 2,
                "mlp_ratio": 1,
                "downsample_ratio": 2,
            },
        },
        placeholder="<image>",
        image_token="<image>",
        special=DEEPSEEK_SPECIAL,
        files={
            "processor_config.json": {
                "candidate_resolutions": [[32, 32], [32, 64], [64, 32], [64, 64], [96, 64]],
                "patch_size": 8,
                "downsample_ratio": 2,
                "pad_token": COMMON[0],
            }
        },
        image_tokens=(13, 27, 35),
    ),
    _ocr(
        "deepseekocr",
        273,
        2048,
        {"hidden_size": 1024, "intermediate_size": 64, "num_attention_heads": 4},
        seed=1,
    ),
    _ocr(
        "deepseekocr_2",
        401,
        896,
        {"width": {"qwen2-0-5b": {"dim": 896}}},
        seed=7,
        spread=5.0,
    ),
)
