"""MiniCPM: images as runs between markers, whose bounds the processor tells."""

from typing import Literal

from .checkpoint import VOCAB
from .text import BASE, DELTA
from .vision_family import TOWER, VisionFamily, token_id

MINICPM_SPECIAL = (
    "<unk>",
    "<image>",
    "</image>",
    "<slice>",
    "</slice>",
    "<image_id>",
    "</image_id>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|listen|>",
)
OMNI_SPECIAL = (
    *MINICPM_SPECIAL[:5],
    "<|listen|>",
    "<audio>",
    *(f"<|{kind}_{end}|>" for kind in ("spk", "tts") for end in ("bos", "eos")),
    "<|audio_start|>",
    "<|audio_end|>",
)


def _sliced(model_type: str, positions: Literal["kept", "axes"], **markers: str) -> VisionFamily:
    return VisionFamily(
        name=model_type,
        kinds=("kv", "recurrent"),
        config={
            "model_type": model_type,
            "vocab_size": VOCAB,
            "tie_word_embeddings": True,
            "image_token_id": token_id(MINICPM_SPECIAL, "<|image_pad|>"),
            "video_token_id": token_id(MINICPM_SPECIAL, "<|video_pad|>"),
            **{key: token_id(MINICPM_SPECIAL, marker) for key, marker in markers.items()},
            "patch_size": 4,
            "insert_layer_id": 0,
            "downsample_mode": "16x",
            "text_config": {
                **BASE,
                **DELTA,
                "model_type": "qwen3_5_text",
                "head_dim": 32,
                "tie_word_embeddings": True,
                "full_attention_interval": 2,
                "rope_parameters": {
                    "type": "default",
                    "mrope_section": [2, 1, 1],
                    "rope_theta": 10000.0,
                    "partial_rotary_factor": 0.25,
                },
            },
            "vision_config": {
                **TOWER,
                "model_type": "minicpmv4_6_vision",
                "image_size": 32,
                "patch_size": 4,
            },
        },
        placeholder="<|image_pad|>",
        image_token="<|image_pad|>",
        special=MINICPM_SPECIAL,
        files={
            "preprocessor_config.json": {
                "patch_size": 4,
                "scale_resolution": 32,
                "max_slice_nums": 4,
                "image_feature_size": 4,
            }
        },
        image_tokens=(4, 20, 20),
        positions=positions,
    )


CANVAS = {
    "image_start_id": "<image>",
    "image_end_id": "</image>",
    "slice_start_id": "<slice>",
    "slice_end_id": "</slice>",
}

MINICPM = (
    VisionFamily(
        name="minicpmo",
        kinds=("kv",),
        config={
            **BASE,
            "model_type": "minicpmo",
            "num_hidden_layers": 3,
            "query_num": 9,
            "image_size": 48,
            "patch_size": 8,
            "init_audio": False,
            "init_tts": False,
            "rope_scaling": {"type": "default", "mrope_section": [4, 2, 2]},
            "vision_config": {**TOWER, "model_type": "siglip_vision_model", "image_size": 48},
        },
        placeholder="<image>./</image>",
        image_token="<unk>",
        special=OMNI_SPECIAL,
        files={
            "preprocessor_config.json": {
                "feature_extractor_type": "WhisperFeatureExtractor",
                "patch_size": 8,
                "scale_resolution": 48,
                "image_feature_size": 9,
            }
        },
        image_tokens=(9, 9, 9),
        positions="kept",
    ),
    _sliced("minicpmv4_6", "kept"),
    _sliced("minicpmv4_7", "axes", **CANVAS),
)
