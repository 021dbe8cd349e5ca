"""Images beside the text: layers of cross-attention look at them, and no token stands for them."""

from .checkpoint import VOCAB
from .text import BASE
from .vision_family import PIXELS, VisionFamily, token_id

MLLAMA_SPECIAL = ("<|image|>", "<|python_tag|>")

CROSS = (
    VisionFamily(
        name="mllama",
        kinds=("kv",),
        config={
            "model_type": "mllama",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_index": token_id(MLLAMA_SPECIAL, "<|image|>"),
            "text_config": {
                **BASE,
                "model_type": "mllama_text_model",
                "cross_attention_layers": [1, 3],
            },
            "vision_config": {
                "model_type": "mllama_vision_model",
                "image_size": 32,
                "patch_size": 8,
                "num_channels": 3,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "attention_heads": 2,  # the name in transformers
                "num_global_layers": 2,
                "max_num_tiles": 4,
                "vision_output_dim": 96,
                "intermediate_layers_indices": [0, 1],
            },
        },
        placeholder="<|image|>",
        image_token="<|image|>",
        special=MLLAMA_SPECIAL,
        files={
            "preprocessor_config.json": {
                **PIXELS,
                "image_processor_type": "MllamaImageProcessor",
                "size": {"height": 32, "width": 32},
                "max_image_tiles": 4,
            }
        },
        image_tokens=(1, 1, 1),
        equal_chunks="without a picture its cross-attention looks at the chunk itself",
    ),
)
