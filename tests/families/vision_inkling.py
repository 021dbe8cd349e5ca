"""Inkling: patches of 40 pixels, in a text model that knows how far apart tokens are by a bias."""

from .checkpoint import VOCAB
from .config_fragments import BASE, WINDOW
from .vision_family import VisionFamily, token_id

SPECIAL = ("<|content_image|>", "<|unused_200054|>", "<|content_audio_input|>", "<|unused_200053|>")

INKLING = (
    VisionFamily(
        name="inkling",
        kinds=("composite",),
        config={
            "model_type": "inkling",
            "vocab_size": VOCAB,
            "tie_word_embeddings": False,
            "image_token_id": token_id(SPECIAL, "<|unused_200054|>"),
            "audio_token_id": token_id(SPECIAL, "<|unused_200053|>"),
            "text_config": {
                **BASE,
                "model_type": "inkling",
                "layer_types": ["hybrid_sliding", "hybrid"] * 2,
                "swa_num_attention_heads": 2,
                "swa_num_key_value_heads": 1,
                "swa_head_dim": 16,
                "sliding_window_size": WINDOW,
                "d_rel": 4,
                "rel_extent": 24,
                # Beyond 16 tokens queries are scaled by position.
                "log_scaling_n_floor": 16,
                "dense_mlp_idx": 1,
                "dense_intermediate_size": 128,
                "intermediate_size": 32,
                "n_routed_experts": 8,
                "num_experts_per_tok": 2,
                "n_shared_experts": 1,
                "route_scale": 1.0,
            },
            "vision_config": {"model_type": "inkling_vision", "n_layers": 3},
            "audio_config": {"model_type": "inkling_audio", "n_mel_bins": 4, "mel_vocab_size": 4},
        },
        placeholder="<|content_image|><|unused_200054|>",
        image_token="<|unused_200054|>",
        special=SPECIAL,
        files={"processor_config.json": {"feature_extractor": {}}},
        image_tokens=(1, 4, 6),
    ),
)
