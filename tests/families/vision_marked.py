"""One mark for a picture, in whose place the network itself puts its features: Phi, Janus."""

from dataclasses import replace
from typing import Any

from mlx_vlm.models.phi3_v.vision import VisionModel

from .checkpoint import VOCAB
from .text import BASE
from .vision_family import TOWER, VisionFamily, token_id

IMAGE_SPECIAL = ("<image>",)
# Pictures as they are, if they have 16 to 96 patches of 8 pixels; else resized to so many.
PATCHES: dict[str, Any] = {"min_num_patches": 16, "max_num_patches": 96}
SIGLIP = {**TOWER, "model_type": "siglip2_vision_model"}

# No more than the library's class has names for.
PHI4_TEXT: dict[str, Any] = {
    "model_type": "phi4-siglip",
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 10000.0,
}

# The library's code has the size of this tower, and not the config: what of it can be less is.
PHI3_TOWER = VisionModel.CLIP_VIT_LARGE_PATCH14_336_CONFIG
PHI3_TOWER.num_hidden_layers, PHI3_TOWER.intermediate_size = 2, 64

PHI3_V = VisionFamily(
    name="phi3_v",
    kinds=("kv",),
    seed=3,
    spread=4.0,
    config={
        **BASE,
        "model_type": "phi3_v",
        "num_hidden_layers": 3,
        "vision_config": {"model_type": "phi3_v"},
    },
    placeholder="<|image_1|>",
    image_token="<|pad|>",
    special=(),
    files={"preprocessor_config.json": {"num_crops": 1}},
    image_tokens=(313, 313, 313),
    most_images=1,  # others have other numbers, which the template would have to count
    mark=-1,
)
# Beyond 32 tokens other factors than before.
LONG_ROPE: dict[str, Any] = {
    "rope_scaling": {
        "type": "su",
        "short_factor": [1.0] * 8,
        "long_factor": [1.0 + pair for pair in range(8)],
    },
    "original_max_position_embeddings": 32,
}

MARKED = (
    PHI3_V,
    replace(
        PHI3_V,
        name="phi3_v_long",
        spread=3.0,
        config={**PHI3_V.config, **LONG_ROPE},
        equal_chunks="a piece's last token decides by which factors all of it is rotated",
    ),
    VisionFamily(
        name="phi4mm",
        kinds=("kv",),
        seed=3,
        spread=1.0,
        config={
            **BASE,
            **PATCHES,
            "model_type": "phi4mm",
            "num_hidden_layers": 3,
            "tie_word_embeddings": True,
            "partial_rotary_factor": 0.5,
            "mm_hidden_size": 32,
            "vision_config": {**SIGLIP, "image_size": 48},
            "audio_processor": {
                "config": {
                    "attention_dim": 16,
                    "attention_heads": 2,
                    "num_blocks": 1,
                    "linear_units": 16,
                    "ext_pw_out_channel": 16,
                    "depthwise_seperable_out_channel": 16,
                    "conv_channels": 16,
                    "input_size": 16,
                }
            },
        },
        placeholder="<|image_1|>",
        image_token="<|pad|>",
        special=IMAGE_SPECIAL,
        files={},
        image_tokens=(16, 48, 96),
        mark=-200,
    ),
    VisionFamily(
        name="phi4_siglip",
        kinds=("kv",),
        seed=1,
        config={
            **PATCHES,
            "model_type": "phi4-siglip",
            "tie_word_embeddings": False,
            "text_config": PHI4_TEXT,
            "mm_hidden_size": 32,
            "mm_vision_tower": "siglip2-naflex",
            "vision_config": {**SIGLIP, "num_patches": 36},
        },
        placeholder="<image>",
        image_token="<|pad|>",
        special=IMAGE_SPECIAL,
        files={},
        image_tokens=(81, 88, 96),
        mark=-200,
    ),
    VisionFamily(
        name="multi_modality",
        kinds=("kv",),
        seed=1,
        config={
            "model_type": "multi_modality",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_index": token_id(IMAGE_SPECIAL, "<image>"),
            "num_image_tokens": 36,
            "text_config": {**BASE, "model_type": "llama", "num_hidden_layers": 3},
            "vision_config": {
                **TOWER,
                "model_type": "vision",
                "image_size": 384,  # the processor knows no other
                "patch_size": 64,
                "hidden_size": 64,
                "cls": "CLIPVisionTower",
                "params": {},
            },
            "aligner_config": {
                "cls": "MlpProjector",
                "model_type": "aligner",
                "params": {"projector_type": "mlp_gelu", "depth": 2},
            },
        },
        placeholder="<image>",
        image_token="<image>",
        special=IMAGE_SPECIAL,
        files={},
        image_tokens=(36, 36, 36),
        mark=token_id(IMAGE_SPECIAL, "<image>"),
        most_images=1,  # the text behind a second one would be lost
    ),
)
