"""LLaVA and what was made after it: a tower, a projector, and features in a row."""

from typing import Any

from .checkpoint import VOCAB
from .config_fragments import BASE, MULTIPLIERS
from .vision_family import PIXELS, TOWER, VisionFamily, token_id
from .vision_tiles import PINPOINTS

SPECIAL = ("<image>",)
IMAGE = token_id(SPECIAL, "<image>")
CLIP: dict[str, Any] = {**TOWER, "model_type": "clip_vision_model", "image_size": 32}
SIGLIP: dict[str, Any] = {**CLIP, "model_type": "siglip_vision_model"}


def _family(
    name: str,
    text: dict[str, Any],
    vision: dict[str, Any],
    files: dict[str, dict[str, Any]],
    image_tokens: tuple[int, int, int],
    config: dict[str, Any] | None = None,
    **promised: Any,
) -> VisionFamily:
    return VisionFamily(
        name=name,
        kinds=("kv",),
        config={
            "model_type": name,
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_index": IMAGE,
            "text_config": {**BASE, "num_hidden_layers": 3, **text},
            "vision_config": vision,
            **(config or {}),
        },
        placeholder="<image>",
        image_token="<image>",
        special=SPECIAL,
        files=files,
        image_tokens=image_tokens,
        **promised,
    )


def _anyres(patch_size: int, **processor: Any) -> dict[str, dict[str, Any]]:
    """Tiles of 32 pixels, and the whole image as one more."""
    return {
        "preprocessor_config.json": {
            **PIXELS,
            "image_processor_type": "LlavaNextImageProcessor",
            "size": {"shortest_edge": 32},
            "crop_size": {"height": 32, "width": 32},
            "image_grid_pinpoints": PINPOINTS,
        },
        "processor_config.json": {"patch_size": patch_size, **processor},
    }


LLAVA = (
    _family(
        "llava",
        {"model_type": "llama"},
        CLIP,
        {
            "preprocessor_config.json": {
                **PIXELS,
                "image_processor_type": "CLIPImageProcessor",
                "size": {"shortest_edge": 32},
                "crop_size": {"height": 32, "width": 32},
            },
            "processor_config.json": {
                "patch_size": 8,
                "vision_feature_select_strategy": "default",
                "num_additional_image_tokens": 1,
            },
        },
        (16, 16, 16),
    ),
    _family(
        "llava_next",
        {"model_type": "mistral"},
        CLIP,
        _anyres(8, vision_feature_select_strategy="default", num_additional_image_tokens=1),
        (36, 70, 120),
        {"image_grid_pinpoints": PINPOINTS},
        mended=True,
        seed=1,
    ),
    _family(
        "granite_vision",
        {**MULTIPLIERS, "model_type": "granite"},
        {**SIGLIP, "patch_size": 16},
        _anyres(16, vision_feature_select_strategy="full"),
        (10, 24, 32),
        {
            "image_grid_pinpoints": PINPOINTS,
            "vision_feature_select_strategy": "full",
            "vision_feature_layer": [-2, -1],
        },
        mended=True,
    ),
    _family(
        "granite4_vision",
        {**MULTIPLIERS, "model_type": "granitemoehybrid", "num_hidden_layers": 4},
        {**SIGLIP, "hidden_size": 64},  # its Q-Former has a head for every 64
        _anyres(8, vision_feature_select_strategy="full", downsample_rate="1/2"),
        (10, 24, 32),
        {
            "image_grid_pinpoints": PINPOINTS,
            "downsample_rate": "1/2",
            "deepstack_layer_map": [[-1, 0], [-2, 1]],
            "use_spatial_sampling": True,
            "spatial_target_layers": [2, 3],
        },
        most_images=1,  # that the library looks at
    ),
    _family(
        "fastvlm",
        {"model_type": "qwen2"},
        {"model_type": "fastvlm", "image_size": 256, "patch_size": 64},
        {
            "preprocessor_config.json": {
                "size": {"shortest_edge": 256},
                "crop_size": {"height": 256, "width": 256},
            }
        },
        (1, 1, 1),
        {"image_token_index": -200, "mm_hidden_size": 64},
        room=16,
        most_images=1,  # that the library puts in their places
    ),
    _family(
        "llava_bunny",
        {"model_type": "qwen2"},
        {**SIGLIP, "image_size": 384, "patch_size": 14},  # all that its processor knows
        {},
        (1, 1, 1),
        {
            "image_token_index": -200,
            "auto_map": {},
            "hidden_size": BASE["hidden_size"],
            "mm_hidden_size": 32,
        },
        room=729,
        most_images=1,
        seed=2,
        spread=4.0,
    ),
)
