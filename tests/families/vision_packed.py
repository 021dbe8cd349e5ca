"""Packed patches of other makers: Cohere, Baidu, Moonshot, RedNote, Microsoft."""

from .checkpoint import VOCAB
from .text import BASE, FULL, MLA, SLIDING, WINDOW
from .vision_family import PIXELS, TOWER, VisionFamily, token_id
from .vision_grid import GRID_PIXELS, GRID_TOWER, QWEN_IDS, QWEN_PIXELS, QWEN_SPECIAL

COMPASS_SPECIAL = ("<|VISION_START|>", "<|IMAGE_PAD|>", "<|VISION_END|>")
PADDLE_SPECIAL = ("<|IMAGE_START|>", "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_END|>")
ERNIE_SPECIAL = (*PADDLE_SPECIAL, "<|image@placeholder|>", "<|VIDEO_START|>", "<|VIDEO_END|>")
DOTS_SPECIAL = ("<|img|>", "<|imgpad|>", "<|endofimg|>", "<|video_pad|>")
KIMI_SPECIAL = (
    "<|media_start|>",
    "<|media_pad|>",
    "<|media_end|>",
    "<|im_assistant|>",
)


def _kimi(name: str, model_type: str, image_tokens: tuple[int, int, int]) -> VisionFamily:
    return VisionFamily(
        name=name,
        kinds=("kv",),
        config={
            "model_type": model_type,
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "media_placeholder_token_id": token_id(KIMI_SPECIAL, "<|media_pad|>"),
            "text_config": {
                **BASE,
                **MLA,
                "model_type": "deepseek_v3",
                "num_hidden_layers": 3,
                "num_key_value_heads": 4,
                "first_k_dense_replace": 1,
                "n_routed_experts": 8,
                "num_experts_per_tok": 2,
                "n_shared_experts": 1,
                "n_group": 1,
                "topk_group": 1,
                "moe_intermediate_size": 32,
                "moe_layer_freq": 1,
            },
            "vision_config": {
                "model_type": "moonvit",
                "depth": 2,
                "num_hidden_layers": 2,
                "embed_dim": 32,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_heads": 2,
                "num_attention_heads": 2,
                "image_size": 48,
                "patch_size": 14,  # mlx-vlm's processor knows no other
                "spatial_patch_size": 14,
                "init_pos_emb_height": 6,
                "init_pos_emb_width": 6,
                "merge_kernel_size": [2, 2],
            },
        },
        placeholder="<|media_start|><|media_pad|><|media_end|>",
        image_token="<|media_pad|>",
        special=KIMI_SPECIAL,
        files={},
        image_tokens=image_tokens,
    )


PACKED = (
    VisionFamily(
        name="cohere_compass",
        kinds=("kv", "window"),
        config={
            "model_type": "cohere_compass",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "vision_start_token_id": token_id(COMPASS_SPECIAL, "<|VISION_START|>"),
            "image_token_id": token_id(COMPASS_SPECIAL, "<|IMAGE_PAD|>"),
            "vision_end_token_id": token_id(COMPASS_SPECIAL, "<|VISION_END|>"),
            "min_pixels": 16 * 16,
            "max_pixels": 128 * 128,
            "text_config": {
                **BASE,
                "model_type": "cohere_compass_text",
                "sliding_window": WINDOW,
                "layer_types": [SLIDING, FULL] * 2,
                "layer_norm_eps": 1e-5,
            },
            "vision_config": {
                **GRID_TOWER,
                "model_type": "cohere_compass_vision",
                "num_position_embeddings": 36,
                "deepstack_visual_indexes": [0, 1],
            },
        },
        placeholder="".join(COMPASS_SPECIAL),
        image_token="<|IMAGE_PAD|>",
        special=COMPASS_SPECIAL,
        files={"preprocessor_config.json": GRID_PIXELS},
        image_tokens=(4, 12, 24),
        positions="kept",
    ),
    VisionFamily(
        name="paddleocr_vl",
        kinds=("kv",),
        config={
            **BASE,
            "model_type": "paddleocr_vl",
            "hidden_size": 1024,  # what mlx-vlm's projector gives, whatever the config says
            "num_hidden_layers": 3,
            "use_bias": False,
            "rope_scaling": {"type": "default", "mrope_section": [4, 2, 2]},
            "vision_start_token_id": token_id(PADDLE_SPECIAL, "<|IMAGE_START|>"),
            "image_token_id": token_id(PADDLE_SPECIAL, "<|IMAGE_PLACEHOLDER|>"),
            "vision_end_token_id": token_id(PADDLE_SPECIAL, "<|IMAGE_END|>"),
            "vision_config": {
                **TOWER,
                "model_type": "paddleocr_vl",
                "image_size": 48,
                "spatial_merge_size": 2,
            },
        },
        placeholder="".join(PADDLE_SPECIAL),
        image_token="<|IMAGE_PLACEHOLDER|>",
        special=PADDLE_SPECIAL,
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "patch_size": 8,
                "temporal_patch_size": 1,
                "merge_size": 2,
                "min_pixels": 16 * 16,
                "max_pixels": 128 * 128,
            }
        },
        image_tokens=(4, 12, 24),
        cuts="wrong",
        positions="axes",
        most_images=1,  # its processor stacks images, as if they were frames
    ),
    VisionFamily(
        name="ernie4_5_moe_vl",
        kinds=("kv",),
        config={
            **BASE,
            "model_type": "ernie4_5_moe_vl",
            "num_hidden_layers": 3,
            "use_bias": False,
            "rope_scaling": {"type": "default", "mrope_section": [3, 3, 2]},
            "moe_num_experts": [8, 8],
            "moe_intermediate_size": [32, 16],
            "moe_layer_start_index": [1, 1],
            "moe_layer_end_index": [2, 2],
            "moe_num_shared_experts": 1,
            "moe_k": 2,
            "image_start_token_id": token_id(ERNIE_SPECIAL, "<|IMAGE_START|>"),
            "im_patch_id": token_id(ERNIE_SPECIAL, "<|IMAGE_PLACEHOLDER|>"),
            "image_end_token_id": token_id(ERNIE_SPECIAL, "<|IMAGE_END|>"),
            "video_token_id": token_id(ERNIE_SPECIAL, "<|IMAGE_PLACEHOLDER|>"),
            "video_start_token_id": token_id(ERNIE_SPECIAL, "<|VIDEO_START|>"),
            "video_end_token_id": token_id(ERNIE_SPECIAL, "<|VIDEO_END|>"),
            "pixel_hidden_size": 32,
            "vision_config": {
                "model_type": "DFNRope_vision_transformer",
                "depth": 2,
                "embed_dim": 32,
                "num_heads": 2,
                "mlp_ratio": 2.0,
                "patch_size": 14,  # mlx-vlm's processor knows no other
                "spatial_merge_size": 2,
                "in_channels": 3,
            },
        },
        placeholder="<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>",
        image_token="<|IMAGE_PLACEHOLDER|>",
        special=ERNIE_SPECIAL,
        files={},
        image_tokens=(4, 4, 6),
        cuts="wrong",
        positions="axes",
        sentencepiece=True,
    ),
    _kimi("kimi_vl", "kimi_vl", (1, 2, 6)),
    _kimi("kimi_k25_vl", "kimi_k25", (4, 6, 12)),
    VisionFamily(
        name="dots_ocr",
        kinds=("kv",),
        config={
            "model_type": "dots_ocr",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_id": token_id(DOTS_SPECIAL, "<|imgpad|>"),
            "video_token_id": token_id(DOTS_SPECIAL, "<|video_pad|>"),
            "text_config": {**BASE, "model_type": "qwen2", "num_hidden_layers": 3},
            "vision_config": {
                **TOWER,
                "model_type": "dots_vit",
                "embed_dim": 32,
                "hidden_size": BASE["hidden_size"],
                "spatial_merge_size": 2,
                "temporal_patch_size": 1,
            },
        },
        placeholder="<|img|><|imgpad|><|endofimg|>",
        image_token="<|imgpad|>",
        special=DOTS_SPECIAL,
        files={"preprocessor_config.json": {**QWEN_PIXELS, "temporal_patch_size": 1}},
        image_tokens=(4, 12, 24),
    ),
    VisionFamily(
        name="mage_vl",
        kinds=("kv",),
        config={
            "model_type": "mage_vl",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            **QWEN_IDS,
            "text_config": {
                **BASE,
                "model_type": "qwen3",
                "num_hidden_layers": 3,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            },
            "vision_config": {
                **TOWER,
                "model_type": "mage_vl_vision",
                "hidden_size": 64,  # halves of heads are divided by 16
                "image_size": 48,
                "spatial_merge_size": 2,
                "temporal_patch_size": 1,
                "out_hidden_size": BASE["hidden_size"],
                "text_hidden_size": BASE["hidden_size"],
            },
        },
        placeholder="<|vision_start|><|image_pad|><|vision_end|>",
        image_token="<|image_pad|>",
        special=QWEN_SPECIAL,
        files={"preprocessor_config.json": {**QWEN_PIXELS, "temporal_patch_size": 1}},
        image_tokens=(4, 12, 24),
    ),
)
