"""The whole picture at one size, and crops of it beside: Molmo, Moondream, Step."""

from typing import Any

from .checkpoint import PAD, SPECIAL, VOCAB
from .text import BASE, TEXT
from .vision_family import VisionFamily, token_id

MOLMO_SPECIAL = ("<im_patch>", "<im_col>", "<im_start>", "<im_end>")
MOLMO2_SPECIAL = (
    *MOLMO_SPECIAL,
    "<|image|>",
    "<low_res_im_start>",
    "<im_low>",
    "<frame_start>",
    "<frame_end>",
)
STEP_SPECIAL = (*MOLMO_SPECIAL, "<patch_start>", "<patch_end>", "<patch_newline>")


def _moondream(name: str, *, seed: int, spread: float, **text: Any) -> VisionFamily:
    return VisionFamily(
        name=name,
        kinds=("kv",),
        seed=seed,
        spread=spread,
        config={
            "model_type": name,
            "tie_word_embeddings": False,
            "text_config": {
                **BASE,
                "model_type": name,
                "num_hidden_layers": 3,
                "num_key_value_heads": 4,
                "rms_norm_eps": 1e-5,
                **text,
            },
            "vision_config": {
                "model_type": f"{name}_vision",
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "max_crops": 3,
                "proj_inner_dim": 64,
                "proj_out_dim": BASE["hidden_size"],
            },
        },
        placeholder="",  # the picture comes first, whatever the text says
        image_token=SPECIAL[PAD],
        special=(),
        files={},
        image_tokens=(729, 729, 729),
        most_images=1,
    )


OVERVIEWS = (
    VisionFamily(
        name="molmo",
        kinds=("kv",),
        config={
            "model_type": "molmo",
            "tie_word_embeddings": False,
            "text_config": {
                "model_type": "molmo",
                "d_model": 64,
                "n_heads": 4,
                "n_kv_heads": 2,
                "n_layers": 3,
                "mlp_hidden_size": 128,
                "vocab_size": VOCAB,
                "embedding_size": VOCAB,
                "additional_vocab_size": 8,
                "rope_theta": 10000.0,
            },
            "vision_config": {
                "model_type": "molmo",
                "image_default_input_size": [48, 48],
                "image_patch_size": 8,
                "image_num_pos": 37,
                "image_emb_dim": 32,
                "image_num_heads": 2,
                "image_num_key_value_heads": 2,
                "image_num_layers": 2,
                "image_head_dim": 16,
                "image_mlp_dim": 64,
                "hidden_size": 64,
                "d_model": 64,
                "vit_layers": [-1, -2],
            },
        },
        placeholder="",  # the picture comes first, whatever the text says
        image_token="<im_patch>",
        special=MOLMO_SPECIAL,
        files={
            "preprocessor_config.json": {
                "max_crops": 8,
                "overlap_margins": [2, 2],
                "base_image_input_size": [48, 48],
                "image_token_length_w": 3,
                "image_token_length_h": 3,
                "image_patch_size": 8,
            }
        },
        image_tokens=(18, 21, 33),
        most_images=1,
    ),
    VisionFamily(
        name="molmo2",
        kinds=("kv",),
        config={
            "model_type": "molmo2",
            "tie_word_embeddings": False,
            "image_patch_id": token_id(MOLMO2_SPECIAL, "<im_patch>"),
            "image_col_id": token_id(MOLMO2_SPECIAL, "<im_col>"),
            "image_start_token_id": token_id(MOLMO2_SPECIAL, "<im_start>"),
            "image_end_token_id": token_id(MOLMO2_SPECIAL, "<im_end>"),
            "low_res_image_start_token_id": token_id(MOLMO2_SPECIAL, "<low_res_im_start>"),
            "image_low_res_id": token_id(MOLMO2_SPECIAL, "<im_low>"),
            "frame_start_token_id": token_id(MOLMO2_SPECIAL, "<frame_start>"),
            "frame_end_token_id": token_id(MOLMO2_SPECIAL, "<frame_end>"),
            "text_config": {
                **BASE,
                "model_type": "molmo2",
                "num_hidden_layers": 3,
                "additional_vocab_size": 8,
            },
            "vit_config": {
                "model_type": "molmo2",
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "head_dim": 16,
            },
            "adapter_config": {
                "model_type": "molmo2",
                "hidden_size": 32,
                "intermediate_size": 64,
                "text_hidden_size": BASE["hidden_size"],
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "vit_layers": [-1, -2],
            },
        },
        placeholder="<|image|>",
        image_token="<im_patch>",
        special=MOLMO2_SPECIAL,
        files={},  # mlx-vlm reads none: crops have 378 pixels a side
        image_tokens=(392, 392, 392),
    ),
    _moondream("moondream2", seed=6, spread=4.0, partial_rotary_factor=0.5),
    _moondream(
        "moondream3",
        seed=1,
        spread=3.0,
        rope_dim=8,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        moe_start_layer=1,
    ),
    VisionFamily(
        name="step3p7",
        kinds=("kv", "window"),
        config={
            "model_type": "step3p7",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_id": token_id(STEP_SPECIAL, "<im_patch>"),
            "text_config": TEXT["step3p5"].config,
            "vision_config": {
                "model_type": "perception_encoder",
                "width": 16,  # the processor knows one size, of 52 by 52 patches
                "layers": 1,
                "heads": 1,
                "mlp_ratio": 2.0,
            },
        },
        placeholder="<im_patch>",
        image_token="<im_patch>",
        special=STEP_SPECIAL,
        files={},
        image_tokens=(169, 169, 169),
        most_images=1,  # its processor finds one place for all of them
    ),
)
