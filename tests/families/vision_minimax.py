"""MiniMax: packed patches, in a text model that chooses blocks of keys."""

from .checkpoint import VOCAB
from .config_fragments import BASE
from .text_sparse import MINIMAX as TEXT
from .vision_family import TOWER, VisionFamily, token_id
from .vision_grid import GRID_PIXELS

SPECIAL = ("]<]start of image[>[", "]<]end of image[>[", "]<]image[>[", "]<]video[>[")

MINIMAX = (
    VisionFamily(
        name="minimax_m3_vl",
        kinds=("kv", "composite"),
        config={
            "model_type": "minimax_m3_vl",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_index": token_id(SPECIAL, "]<]image[>["),
            "video_token_index": token_id(SPECIAL, "]<]video[>["),
            "vision_start_token_id": token_id(SPECIAL, "]<]start of image[>["),
            "vision_end_token_id": token_id(SPECIAL, "]<]end of image[>["),
            "projector_hidden_size": BASE["hidden_size"],
            "img_token_compression_config": {"spatial_merge_size": 2, "temporal_patch_size": 2},
            "text_config": {
                **BASE,
                **TEXT,
                "model_type": "minimax_m3",
                # The first block is always looked at, too.
                "sparse_attention_config": {
                    **TEXT["sparse_attention_config"],
                    "sparse_init_block": 1,
                },
            },
            "vision_config": {**TOWER, "model_type": "clip_vision_model"},
        },
        placeholder="]<]image[>[",
        image_token="]<]image[>[",
        special=SPECIAL,
        files={
            "preprocessor_config.json": {
                **GRID_PIXELS,
                "min_pixels": 16 * 16,
                "max_pixels": 128 * 128,
            }
        },
        image_tokens=(4, 12, 24),
        positions="kept",
    ),
)
