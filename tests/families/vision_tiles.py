"""Images as rows of patches or as square tiles, with marker tokens between them."""

from .checkpoint import VOCAB
from .config_fragments import LATENT, LOCAL, ROUTED, SCALED_ROPE, YARN, Config
from .text import BASE, CONV, FULL, WINDOW
from .vision_family import PIXELS, TOWER, VisionFamily, token_id

# Idefics3 and SmolVLM: square tiles, then the whole image as one more tile.
TILE_SPECIAL = (
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
    "<end_of_utterance>",
    *(f"<row_{row}_col_{col}>" for row in range(1, 4) for col in range(1, 4)),
)


def _tiles(
    name: str, image_processor: str, *, patch_size: int, scale_factor: int, seed: int = 0
) -> VisionFamily:
    return VisionFamily(
        name=name,
        kinds=("kv",),
        seed=seed,
        config={
            "model_type": name,
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "scale_factor": scale_factor,
            "image_token_id": token_id(TILE_SPECIAL, "<image>"),
            "text_config": {**BASE, "model_type": "llama", "num_hidden_layers": 3},
            "vision_config": {
                **TOWER,
                "model_type": f"{name}_vision",
                "image_size": 32,
                "patch_size": patch_size,
            },
        },
        placeholder="<image>",
        image_token="<image>",
        special=TILE_SPECIAL,
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "image_processor_type": image_processor,
                "size": {"longest_edge": 96},
                "max_image_size": {"longest_edge": 32},
                "do_image_splitting": True,
            },
            "processor_config.json": {"image_seq_len": 4},
        },
        image_tokens=(40, 40, 28),
    )


PLAIN: Config = {"model_type": "mistral", "num_hidden_layers": 3}
# Both scale their queries by position. YaRN has a border of its own under the same name.
MINISTRAL: Config = {"model_type": "ministral3", **LOCAL, "rope_parameters": SCALED_ROPE}
MISTRAL4: Config = {
    "model_type": "mistral4",
    **LATENT,
    **ROUTED,
    "num_hidden_layers": 2,
    "rope_parameters": {**YARN, **SCALED_ROPE},
}


def _rows(
    name: str,
    kinds: tuple[str, ...] = ("kv",),
    *,
    patch_size: int,
    merge: int,
    seed: int,
    text: Config = PLAIN,
) -> VisionFamily:
    """Rows of patches, each with a break at its end. A name may tell its text model as well."""
    return VisionFamily(
        name=name,
        kinds=kinds,
        seed=seed,
        config={
            "model_type": name.partition("_")[0],
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_index": token_id(PIXTRAL_SPECIAL, "[IMG]"),
            "spatial_merge_size": merge,
            "text_config": {**BASE, **text},
            "vision_config": {
                **TOWER,
                "model_type": "pixtral",
                "head_dim": 16,
                "image_size": 96,
                "patch_size": patch_size,
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
                "patch_size": {"height": patch_size, "width": patch_size},
            },
            "processor_config.json": {"patch_size": patch_size, "spatial_merge_size": merge},
        },
        image_tokens=(4, 12, 24),
    )


PIXTRAL_SPECIAL = ("[IMG]", "[IMG_BREAK]", "[IMG_END]")
INTERN_SPECIAL = ("<image>", "<img>", "<IMG_CONTEXT>", "</img>")
AYA_SPECIAL = (
    "<image>",
    "<|START_OF_IMG|>",
    "<|END_OF_IMG|>",
    "<|IMG_PATCH|>",
    "<|IMG_LINE_BREAK|>",
    "TILE",
    "TILE_GLOBAL",
)
LLAVA_SPECIAL = ("<image>", "<video>")
PINPOINTS = [[32, 32], [32, 64], [64, 32], [64, 64], [64, 96]]
LFM2_SPECIAL = (
    "<|image_start|>",
    "<|image_end|>",
    "<image>",
    "<|img_thumbnail|>",
    *(f"<|img_row_{row}_col_{col}|>" for row in range(1, 4) for col in range(1, 4)),
)

TILES = (
    _tiles("smolvlm", "SmolVLMImageProcessor", patch_size=4, scale_factor=4),
    _tiles("idefics3", "Idefics3ImageProcessor", patch_size=8, scale_factor=2, seed=1),
    _rows("pixtral", patch_size=16, merge=1, seed=2),
    _rows("mistral3", patch_size=8, merge=2, seed=1),
    _rows(
        *("mistral3_ministral3", ("kv", "window")), patch_size=8, merge=2, seed=1, text=MINISTRAL
    ),
    _rows("mistral3_mistral4", patch_size=8, merge=2, seed=1, text=MISTRAL4),
    VisionFamily(
        name="lfm2_vl",
        kinds=("kv", "recurrent"),
        config={
            "model_type": "lfm2_vl",
            "image_token_id": token_id(LFM2_SPECIAL, "<image>"),
            "downsample_factor": 2,
            "projector_hidden_size": 64,
            "tie_word_embeddings": True,
            "text_config": {
                **BASE,
                "model_type": "lfm2",
                "tie_word_embeddings": True,
                "layer_types": [CONV, FULL] * 2,
                "norm_eps": 1e-6,
                "conv_bias": False,
                "conv_L_cache": 3,
                "block_dim": 64,
                "block_ff_dim": 128,
                "block_multiple_of": 32,
                "block_ffn_dim_multiplier": 1.0,
                "block_auto_adjust_ff_dim": False,
            },
            "vision_config": {**TOWER, "model_type": "siglip2_vision_model", "num_patches": 16},
        },
        placeholder="<image>",
        image_token="<image>",
        special=LFM2_SPECIAL,
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "encoder_patch_size": 8,
                "downsample_factor": 2,
                "min_image_tokens": 4,
                "max_image_tokens": 12,
                "max_pixels_tolerance": 1.5,  # so that 96x64 is cut into tiles
                "tile_size": 32,
            }
        },
        image_tokens=(4, 12, 32),
    ),
    VisionFamily(
        name="idefics2",
        kinds=("kv",),
        config={
            "model_type": "idefics2",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_id": token_id(TILE_SPECIAL, "<image>"),
            "text_config": {**BASE, "model_type": "mistral", "num_hidden_layers": 3},
            "vision_config": {**TOWER, "model_type": "idefics2", "image_size": 48},
            "perceiver_config": {
                "model_type": "idefics2",
                "num_key_value_heads": 2,
                "resampler_depth": 2,
                "resampler_head_dim": 16,
                "resampler_n_heads": 4,
                "resampler_n_latents": 8,
            },
        },
        placeholder="<image>",
        image_token="<image>",
        special=TILE_SPECIAL,
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "image_processor_type": "Idefics2ImageProcessor",
                "size": {"longest_edge": 48, "shortest_edge": 24},
                "do_image_splitting": False,
            },
            "processor_config.json": {"image_seq_len": 8},
        },
        image_tokens=(8, 8, 8),
    ),
    VisionFamily(
        name="internvl_chat",
        kinds=("kv",),
        seed=1,
        config={
            "model_type": "internvl_chat",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_index": token_id(INTERN_SPECIAL, "<IMG_CONTEXT>"),
            "force_image_size": 32,
            "max_dynamic_patch": 4,
            "downsample_ratio": 0.5,
            "use_thumbnail": True,
            "text_config": {**BASE, "model_type": "qwen2", "num_hidden_layers": 3},
            "vision_config": {**TOWER, "model_type": "intern_vit_6b", "image_size": 32},
        },
        placeholder="<image>",
        image_token="<IMG_CONTEXT>",
        special=INTERN_SPECIAL,
        files={},
        image_tokens=(4, 20, 20),
    ),
    VisionFamily(
        name="aya_vision",
        kinds=("kv", "window"),
        config={
            "model_type": "aya_vision",
            "vocab_size": VOCAB,
            "tie_word_embeddings": True,
            "image_token_index": token_id(AYA_SPECIAL, "<|IMG_PATCH|>"),
            "downsample_factor": 2,
            "alignment_intermediate_size": 64,
            "adapter_layer_norm_eps": 1e-6,
            "text_config": {
                **BASE,
                "model_type": "cohere2",
                "tie_word_embeddings": True,
                "sliding_window": WINDOW,
                "sliding_window_pattern": 2,
                "layer_norm_eps": 1e-5,
                "logit_scale": 1.0,
            },
            "vision_config": {**TOWER, "model_type": "siglip_vision_model", "image_size": 32},
        },
        placeholder="<image>",
        image_token="<|IMG_PATCH|>",
        special=AYA_SPECIAL,
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "image_processor_type": "GotOcr2ImageProcessor",
                "size": {"height": 32, "width": 32},
                "min_patches": 1,
                "max_patches": 4,
                "crop_to_patches": True,
            },
            "processor_config.json": {"patch_size": 16, "img_size": 32, "downsample_factor": 1},
        },
        image_tokens=(4, 20, 20),
    ),
    VisionFamily(
        name="llava_onevision",
        kinds=("kv",),
        config={
            "model_type": "llava_onevision",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_index": token_id(LLAVA_SPECIAL, "<image>"),
            "video_token_index": token_id(LLAVA_SPECIAL, "<video>"),
            "image_grid_pinpoints": PINPOINTS,
            "text_config": {**BASE, "model_type": "qwen2", "num_hidden_layers": 3},
            "vision_config": {
                **TOWER,
                "model_type": "siglip_vision_model",
                "image_size": 32,
                "patch_size": 16,
            },
        },
        placeholder="<image>",
        image_token="<image>",
        special=LLAVA_SPECIAL,
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "image_processor_type": "LlavaOnevisionImageProcessor",
                "size": {"height": 32, "width": 32},
                "image_grid_pinpoints": PINPOINTS,
            },
            "processor_config.json": {
                "num_image_tokens": 4,
                "vision_feature_select_strategy": "full",
                "vision_aspect_ratio": "anyres_max_9",
            },
        },
        image_tokens=(10, 24, 32),
    ),
)
