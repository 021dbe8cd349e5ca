"""Images as rows of patches or as square tiles, with marker tokens between them."""

from .checkpoint import VOCAB
from .text import BASE, CONV, FULL
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


PIXTRAL_SPECIAL = ("[IMG]", "[IMG_BREAK]", "[IMG_END]")
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
    VisionFamily(
        name="pixtral",
        kinds=("kv",),
        seed=2,
        config={
            "model_type": "pixtral",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_index": token_id(PIXTRAL_SPECIAL, "[IMG]"),
            "text_config": {**BASE, "model_type": "mistral", "num_hidden_layers": 3},
            "vision_config": {
                **TOWER,
                "model_type": "pixtral",
                "head_dim": 16,
                "image_size": 96,
                "patch_size": 16,
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
            "processor_config.json": {"patch_size": 16, "spatial_merge_size": 1},
        },
        image_tokens=(4, 12, 24),
    ),
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
)
