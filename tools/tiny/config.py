"""Sizes of the model, its special tokens, and the plan of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE_PAD, VIDEO_PAD = "<|image_pad|>", "<|video_pad|>"
# Their ids are their places in these two tuples, special ones first.
SPECIAL = (END_OF_TEXT, IM_START, IM_END, VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD)
# Markup that a reply's reader must see, so decoding keeps it.
MARKUP = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)


@dataclass(frozen=True)
class Sizes:
    vocab: int = 2560
    hidden: int = 256
    layers: int = 8
    full_every: int = 2  # every second layer is full attention, the others gated delta nets
    mlp: int = 384
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    rotary: float = 0.5
    sections: tuple[int, int, int] = (6, 5, 5)
    theta: float = 100_000.0
    key_heads: int = 2
    value_heads: int = 4
    delta_dim: int = 64  # of keys and values; Metal's kernel needs multiples of 32
    kernel: int = 4
    context: int = 65_536
    vision_width: int = 160
    vision_depth: int = 5
    vision_heads: int = 5
    vision_mlp: int = 448
    patch: int = 16
    merge: int = 2
    grid: int = 12  # learned positions per side, and the longest side of a training image
    eps: float = 1e-6

    @property
    def patches(self) -> int:
        return self.grid * self.grid

    @property
    def image_tokens(self) -> int:
        return self.patches // self.merge**2

    @property
    def layer_types(self) -> list[str]:
        full, linear = "full_attention", "linear_attention"
        return [full if (at + 1) % self.full_every == 0 else linear for at in range(self.layers)]

    def to_config(self) -> dict[str, Any]:
        """config.json as Qwen3.5 checkpoints have it."""
        text = {
            "model_type": "qwen3_5_text",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.mlp,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.eps,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "attn_output_gate": True,
            "full_attention_interval": self.full_every,
            "layer_types": self.layer_types,
            "linear_num_key_heads": self.key_heads,
            "linear_num_value_heads": self.value_heads,
            "linear_key_head_dim": self.delta_dim,
            "linear_value_head_dim": self.delta_dim,
            "linear_conv_kernel_dim": self.kernel,
            "mtp_num_hidden_layers": 1,
            "eos_token_id": SPECIAL.index(IM_END),
            "rope_parameters": {
                "rope_type": "default",
                "mrope_interleaved": True,
                "mrope_section": list(self.sections),
                "rope_theta": self.theta,
                "partial_rotary_factor": self.rotary,
            },
        }
        vision = {
            "model_type": "qwen3_5",
            "depth": self.vision_depth,
            "hidden_size": self.vision_width,
            "intermediate_size": self.vision_mlp,
            "num_heads": self.vision_heads,
            "out_hidden_size": self.hidden,
            "patch_size": self.patch,
            "temporal_patch_size": 2,
            "spatial_merge_size": self.merge,
            "in_channels": 3,
            "hidden_act": "gelu_pytorch_tanh",
            "num_position_embeddings": self.patches,
            "deepstack_visual_indexes": [],
        }
        return {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "dtype": "bfloat16",
            "vocab_size": self.vocab,
            "tie_word_embeddings": True,
            "eos_token_id": [SPECIAL.index(IM_END), SPECIAL.index(END_OF_TEXT)],
            "pad_token_id": SPECIAL.index(END_OF_TEXT),
            "image_token_id": SPECIAL.index(IMAGE_PAD),
            "video_token_id": SPECIAL.index(VIDEO_PAD),
            "vision_start_token_id": SPECIAL.index(VISION_START),
            "vision_end_token_id": SPECIAL.index(VISION_END),
            "text_config": text,
            "vision_config": vision,
        }


def preprocessor_config(sizes: Sizes) -> dict[str, Any]:
    """Small pictures are enlarged and large ones reduced, so that details keep their scale."""
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen3VLProcessor",
        "patch_size": sizes.patch,
        "temporal_patch_size": 2,
        "merge_size": sizes.merge,
        "min_pixels": MIN_SIDE**2,
        "max_pixels": (sizes.grid * sizes.patch) ** 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "do_normalize": True,
        "do_rescale": True,
        "do_convert_rgb": True,
    }


MIN_SIDE = 128
