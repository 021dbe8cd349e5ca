"""GLM: Qwen's packed patches; the model keeps a prompt's positions and does not return them."""

from typing import Any, Literal

from .checkpoint import VOCAB
from .text import BASE
from .vision_family import VisionFamily, token_id
from .vision_grid import GRID_PIXELS, GRID_TOWER

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


def _glm(
    model_type: str,
    *,
    seed: int,
    cuts: Literal["exact", "wrong"],
    without: tuple[str, ...] = (),
    **text: Any,
) -> VisionFamily:
    return VisionFamily(
        name=model_type,
        kinds=("kv",),
        seed=seed,
        config={
            "model_type": model_type,
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
                **{key: value for key, value in BASE.items() if key not in without},
                "model_type": f"{model_type}_text",
                "num_hidden_layers": 3,
                **text,
            },
            "vision_config": {**GRID_TOWER, "model_type": model_type, "image_size": 48},
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
        cuts=cuts,
        positions="axes",
    )


GLM4V: dict[str, Any] = {
    "attention_bias": True,
    "partial_rotary_factor": 0.5,
    "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]},
}

GLM = (
    # Wrong: later chunks count positions on from the whole prompt's delta.
    _glm("glm4v", seed=4, cuts="wrong", **GLM4V),
    _glm(
        "glm4v_moe",
        seed=7,
        cuts="wrong",
        **GLM4V,
        use_qk_norm=False,
        first_k_dense_replace=1,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        norm_topk_prob=True,
        n_group=1,
        topk_group=1,
        routed_scaling_factor=1.0,
    ),
    _glm(
        "glm_ocr",
        seed=6,
        cuts="exact",
        without=("rope_theta", "torch_dtype", "bos_token_id"),  # its config refuses them
        num_nextn_predict_layers=0,
        rope_parameters={
            "rope_type": "default",
            "mrope_section": [2, 3, 3],
            "partial_rotary_factor": 1.0,
            "rope_theta": 10000.0,
        },
    ),
)
