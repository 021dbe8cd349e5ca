"""Pictures of any size as runs of placeholders, whose positions are counted as those of text."""

from .checkpoint import VOCAB
from .text import BASE, TEXT
from .vision_family import PIXELS, TOWER, VisionFamily, token_id
from .vision_grid import GRID_PIXELS, GRID_TOWER, QWEN_IDS, QWEN_PIXELS, QWEN_SPECIAL
from .vision_tiles import PIXTRAL_SPECIAL

MIMO_SPECIAL = (*QWEN_SPECIAL, "<|audio_pad|>")
ZAYA_SPECIAL = ("<image>",)
NEMOTRON_SPECIAL = ("<image>", "<img>", "</img>", "<video>", "<so_embedding>")

COUNTED = (
    VisionFamily(
        name="mimo_v2",
        kinds=("kv", "window"),
        config={
            **TEXT["mimo_v2_flash"].config,
            **QWEN_IDS,
            "model_type": "mimo_v2",
            "audio_token_id": token_id(MIMO_SPECIAL, "<|audio_pad|>"),
            "vision_config": {
                **GRID_TOWER,
                "model_type": "mimovl",
                "depth": 3,
                "num_key_value_heads": 1,
                "qk_channels": 16,
                "visual_token_window_size": 4,
                "fullatt_block_indexes": [0],
                "vit_window_attn_types": [-1, 0, 1],  # all patches, along rows, along columns
            },
            "audio_config": {
                "out_hidden_size": BASE["hidden_size"],
                "audio_channels": 2,
                "input_local_attn_heads": 2,
                "input_local_dim": 16,
                "input_local_intermediate_size": 16,
                "input_local_layers": 1,
                "speech_vocab_size": 8,
                "speech_zeroemb_idx": 0,
            },
        },
        placeholder="<|vision_start|><|image_pad|><|vision_end|>",
        image_token="<|image_pad|>",
        special=MIMO_SPECIAL,
        files={"preprocessor_config.json": QWEN_PIXELS},
        image_tokens=(4, 12, 24),
    ),
    VisionFamily(
        name="mistral_large3",
        kinds=("kv",),
        config={
            "model_type": "mistral_large3",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_id": token_id(PIXTRAL_SPECIAL, "[IMG]"),
            "spatial_merge_size": 2,
            "text_config": {
                **TEXT["deepseek_v3"].config,
                "model_type": "mistral_large3",
                "num_hidden_layers": 3,
            },
            "vision_config": {
                **TOWER,
                "model_type": "pixtral",
                "head_dim": 16,
                "image_size": 96,
                "rms_norm_eps": 1e-5,
                "rope_theta": 10000.0,
            },
        },
        placeholder="[IMG]",
        image_token="[IMG]",
        special=PIXTRAL_SPECIAL,
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "image_processor_type": "PixtralImageProcessor",
                "size": {"longest_edge": 96},
                "patch_size": {"height": 16, "width": 16},
            },
            # mlx-vlm brings no processor for it: checkpoints name the one of transformers.
            "processor_config.json": {
                "processor_class": "PixtralProcessor",
                "patch_size": 8,
                "spatial_merge_size": 2,
            },
        },
        image_tokens=(4, 12, 24),
    ),
    VisionFamily(
        name="zaya1_vl",
        kinds=("composite",),
        spread=3.0,
        config={
            **BASE,
            "model_type": "zaya1_vl",
            "num_hidden_layers": 3,
            "ffn_hidden_size": 64,
            "num_experts": 4,
            "num_query_groups": 2,
            "norm_epsilon": 1e-6,
            "zaya_mlp_expansion": 16,
            "partial_rotary_factor": 0.5,
            "vision_lora_rank_attn": 8,
            "vision_lora_rank_mlp": 8,
            "tie_word_embeddings": False,
            "image_token_id": token_id(ZAYA_SPECIAL, "<image>"),
            "vision_config": {
                **GRID_TOWER,
                "model_type": "qwen2_5_vl",
                "window_size": 32,
                "fullatt_block_indexes": [1],
            },
        },
        placeholder="<image>",
        image_token="<image>",
        special=ZAYA_SPECIAL,
        files={
            "preprocessor_config.json": {
                **GRID_PIXELS,
                "min_pixels": 16 * 16,
                "max_pixels": 128 * 128,
            }
        },
        image_tokens=(4, 12, 24),
    ),
    VisionFamily(
        name="nemotron_h_nano_omni",
        kinds=("kv", "recurrent"),
        config={
            "model_type": "nemotron_h_nano_omni",
            "tie_word_embeddings": False,
            "img_context_token_id": token_id(NEMOTRON_SPECIAL, "<image>"),
            "vit_hidden_size": 32,
            "projector_hidden_size": 64,
            "text_config": TEXT["nemotron_h"].config,
            "vision_config": {
                **TOWER,
                "model_type": "radio",
                "image_size": 32,
                "max_resolution": 96,
            },
        },
        placeholder="<image>",
        image_token="<image>",
        special=NEMOTRON_SPECIAL,
        files={
            "preprocessor_config.json": {
                "norm_mean": [0.5] * 3,
                "norm_std": [0.5] * 3,
                "patch_size": 8,
                "min_num_patches": 16,
                "max_num_patches": 96,
            }
        },
        image_tokens=(4, 12, 24),
    ),
)
