"""Hunyuan VL: rows of an image end with a token of their own, and positions have four axes.

It reads what is left on the model before it reads what it is told: see
`models/test_hunyuan_positions.py`.
"""

from mlx_vlm.models.hunyuan_vl.processing_hunyuan_vl import (
    HunYuanVLImageProcessor,
    HunYuanVLProcessor,
)

from .checkpoint import PAD, VOCAB
from .text import BASE
from .vision_family import TOWER, VisionFamily, token_id

HUNYUAN_SPECIAL = ("<|image_begin|>", "<|image_row|>", "<|image_finish|>")


def shrink() -> None:
    """The library knows the ids of one vocabulary, and images of 512 pixels a side or more: both
    are other ones in the tests' process.
    """
    start, image, end = (token_id(HUNYUAN_SPECIAL, token) for token in HUNYUAN_SPECIAL)
    HunYuanVLProcessor.IM_START_TOKEN_ID, HunYuanVLProcessor.IM_END_TOKEN_ID = start, end
    HunYuanVLProcessor.IMAGE_TOKEN_ID, HunYuanVLProcessor.PAD_TOKEN_ID = image, PAD
    _, _, _, *others = HunYuanVLImageProcessor.__init__.__defaults__
    HunYuanVLImageProcessor.__init__.__defaults__ = (16 * 16, 128 * 128, 8, *others)


HUNYUAN = (
    VisionFamily(
        name="hunyuan_vl",
        kinds=("kv",),
        config={
            "model_type": "hunyuan_vl",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_start_token_id": token_id(HUNYUAN_SPECIAL, "<|image_begin|>"),
            "image_token_id": token_id(HUNYUAN_SPECIAL, "<|image_row|>"),
            "image_end_token_id": token_id(HUNYUAN_SPECIAL, "<|image_finish|>"),
            "text_config": {
                **BASE,
                "model_type": "hunyuan_vl",
                "num_hidden_layers": 3,
                "rope_scaling": {
                    "type": "xdrope",
                    "alpha": 1000.0,
                    "factor": 1.0,
                    "xdrope_section": [2, 2, 2, 2],
                },
            },
            "vision_config": {
                **TOWER,
                "model_type": "hunyuan_vl",
                "out_hidden_size": BASE["hidden_size"],
                "max_image_size": 64,
            },
        },
        placeholder="".join(HUNYUAN_SPECIAL),
        image_token="<|image_row|>",
        special=HUNYUAN_SPECIAL,
        files={},
        image_tokens=(8, 17, 30),
        cuts="whole",
        most_images=1,  # of several each looks at the others, which makes a poor reference
    ),
)
