"""A picture and the text behind it as one prefix, whose tokens all see one another: PaliGemma."""

from typing import Any

from .checkpoint import PAD, VOCAB
from .text import BASE
from .vision_family import PIXELS, TOWER, VisionFamily, token_id

PALI_SPECIAL = ("<image>",)
GEMMA2 = {
    "model_type": "gemma2",
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "query_pre_attn_scalar": 16,
}


def _paligemma(name: str, text: dict[str, Any]) -> VisionFamily:
    return VisionFamily(
        name=name,
        kinds=("kv",),
        spread=1.0,
        config={
            "model_type": "paligemma",
            "vocab_size": VOCAB,
            "pad_token_id": PAD,
            "tie_word_embeddings": True,
            "image_token_index": token_id(PALI_SPECIAL, "<image>"),
            "hidden_size": BASE["hidden_size"],
            "projection_dim": BASE["hidden_size"],
            "text_config": {**BASE, "num_hidden_layers": 3, "tie_word_embeddings": True, **text},
            "vision_config": {**TOWER, "model_type": "siglip_vision_model", "image_size": 32},
        },
        placeholder="<image>",
        image_token="<image>",
        special=PALI_SPECIAL,
        named={"image_token": "<image>"},
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "image_processor_type": "SiglipImageProcessor",
                "size": {"height": 32, "width": 32},
                "image_seq_length": 16,
            }
        },
        image_tokens=(16, 16, 16),
        cuts="always refused",
        most_images=1,
        added_tokens=1024 + 128,  # places and segments
    )


PREFIX = (
    _paligemma("paligemma", {"model_type": "gemma"}),
    _paligemma("paligemma2", GEMMA2),
)
