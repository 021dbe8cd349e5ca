"""Qwen: packed patches with a (t, h, w) grid, and positions of three axes.

Two by two patches of 8 pixels are merged into one image token.
"""

from dataclasses import replace
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
QWEN_PIXELS = {
    **GRID_PIXELS,
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen3VLProcessor",
    "min_pixels": 16 * 16,
    "max_pixels": 128 * 128,
}
QWEN_SPECIAL = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
QWEN_IDS = {
    "vision_start_token_id": token_id(QWEN_SPECIAL, "<|vision_start|>"),
    "vision_end_token_id": token_id(QWEN_SPECIAL, "<|vision_end|>"),
    "image_token_id": token_id(QWEN_SPECIAL, "<|image_pad|>"),
    "video_token_id": token_id(QWEN_SPECIAL, "<|video_pad|>"),
}


def _qwen(
    name: str, kinds: tuple[str, ...], config: dict[str, Any], **changed: Any
) -> VisionFamily:
    family = VisionFamily(
        name=name,
        kinds=kinds,
        config={**QWEN_IDS, **config},
        placeholder="<|vision_start|><|image_pad|><|vision_end|>",
        image_token="<|image_pad|>",
        special=QWEN_SPECIAL,
        files={"preprocessor_config.json": QWEN_PIXELS},
        image_tokens=(4, 12, 24),
        positions="axes",
    )
    return replace(family, **changed)


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


def _qwen4() -> VisionFamily:
    """Every other layer looks at four blocks of four tokens; of the others one has n-grams."""
    family = _qwen3_5(
        "qwen4_exp",
        "qwen4_exp",
        **EXPERTS,
        shared_expert_intermediate_size=32,
        hc_count=2,
        hc_lowrank=16,
        ple_layer_ids=[3],
        ple_embed_dim=32,
        heads_per_ngram=2,
        ngram_vocab_size_base=64,
        make_ngram_vocab_size_divisible_by=8,
        split_ngram_parts=2,
        indexer_n_heads=4,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=16,
        indexer_compress_ratio=4,
    )
    return replace(family, kinds=("indexed", "recurrent"))


def _qwen3_vl(model_type: str, **text: Any) -> VisionFamily:
    return _qwen(
        model_type,
        ("kv",),
        {
            "model_type": model_type,
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "text_config": {
                **BASE,
                "model_type": f"{model_type}_text",
                "num_hidden_layers": 3,
                "rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2]},
                **text,
            },
            "vision_config": {
                **GRID_TOWER,
                "model_type": model_type,
                "num_position_embeddings": 36,
                "deepstack_visual_indexes": [0, 1],
            },
        },
    )


def _qwen3_omni() -> VisionFamily:
    """Its thinker sees and writes; the talker and its voice are left out."""
    special = (*QWEN_SPECIAL, "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>")
    text = {
        **BASE,
        **EXPERTS,
        "model_type": "qwen3_omni_moe_text",
        "num_hidden_layers": 3,
        "mlp_only_layers": [],
        "rope_scaling": {"type": "default", "rope_type": "default", "mrope_section": [4, 2, 2]},
    }
    thinker = {
        **QWEN_IDS,
        "model_type": "qwen3_omni_moe_thinker",
        "audio_start_token_id": token_id(special, "<|audio_start|>"),
        "audio_end_token_id": token_id(special, "<|audio_end|>"),
        "audio_token_id": token_id(special, "<|audio_pad|>"),
        "text_config": text,
        "vision_config": {
            **GRID_TOWER,
            "model_type": "qwen3_omni_moe_vision_encoder",
            "num_position_embeddings": 36,
            "deepstack_visual_indexes": [0, 1],
        },
        "audio_config": {
            "model_type": "qwen3_omni_moe_audio_encoder",
            "d_model": 16,
            "encoder_layers": 1,
            "num_hidden_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
            "num_mel_bins": 16,
            "output_dim": BASE["hidden_size"],
            "downsample_hidden_size": 8,
            "n_window": 8,
            "n_window_infer": 16,
            "max_source_positions": 32,
        },
    }
    config = {
        "model_type": "qwen3_omni_moe",
        "tie_word_embeddings": False,
        "enable_audio_output": False,
        "thinker_config": thinker,
        "talker_config": {
            "text_config": text,
            "code_predictor_config": {"num_hidden_layers": 1, "layer_types": [FULL]},
        },
        "code2wav_config": {},
    }
    marks = {"vision": QWEN_SPECIAL[:2], "audio": special[-3:-1]}
    ends = {
        f"{kind}_{end}_token": mark
        for kind, pair in marks.items()
        for end, mark in zip(("bos", "eos"), pair, strict=True)
    }
    pads = {f"{kind}_token": f"<|{kind}_pad|>" for kind in ("image", "video", "audio")}
    pixels = {**QWEN_PIXELS, "feature_extractor_type": "WhisperFeatureExtractor"}
    return _qwen(
        "qwen3_omni_moe",
        ("kv",),
        config,
        special=special,
        named={**pads, **ends},
        files={"preprocessor_config.json": {**pixels, "processor_class": "Qwen3OmniMoeProcessor"}},
    )


MROPE = {"type": "mrope", "rope_type": "default", "mrope_section": [4, 2, 2]}

GRID = (
    _qwen3_5("qwen3_5_vl", "qwen3_5", tie_word_embeddings=True),
    _qwen3_5("qwen3_5_moe_vl", "qwen3_5_moe", **EXPERTS, shared_expert_intermediate_size=32),
    _qwen4(),
    _qwen(
        "qwen2_vl",
        ("kv",),
        # mlx-vlm reads the text config from the root keys, here and in the next one.
        {
            **BASE,
            "model_type": "qwen2_vl",
            "num_hidden_layers": 3,
            "rope_scaling": MROPE,
            "vision_config": {
                "model_type": "qwen2_vl",
                "depth": 2,
                "embed_dim": 32,
                "hidden_size": BASE["hidden_size"],
                "num_heads": 2,
                "mlp_ratio": 2,
                "patch_size": 8,
                "spatial_patch_size": 8,
                "temporal_patch_size": 2,
                "spatial_merge_size": 2,
                "in_channels": 3,
            },
        },
    ),
    _qwen(
        "qwen2_5_vl",
        ("kv",),
        {
            **BASE,
            "model_type": "qwen2_5_vl",
            "num_hidden_layers": 3,
            "rope_scaling": MROPE,
            "vision_config": {
                **GRID_TOWER,
                "model_type": "qwen2_5_vl",
                "window_size": 32,
                "fullatt_block_indexes": [1],
            },
        },
    ),
    _qwen3_vl("qwen3_vl"),
    _qwen3_vl("qwen3_vl_moe", **EXPERTS, mlp_only_layers=[]),
    _qwen3_omni(),
)
