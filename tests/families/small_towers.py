"""Vision towers that the library knows in one size only, made small for the tests' process."""

from functools import partial

from mlx_vlm.models.deepseekocr import deepseekocr
from mlx_vlm.models.deepseekocr.config import SAMViTConfig
from mlx_vlm.models.deepseekocr_2 import deepseekocr_2
from mlx_vlm.models.deepseekocr_2 import vision as deepseekocr_2_vision
from mlx_vlm.models.deepseekocr_2.config import Qwen2EncoderConfig
from mlx_vlm.models.deepseekocr_2.processing_deepseekocr import DeepseekOCR2Processor
from mlx_vlm.models.fastvlm.config import VisionConfig


def shrink() -> None:
    """Before a checkpoint of one of these families is made or loaded."""
    # Its stages are no fields of the config, so that no checkpoint can set them.
    VisionConfig.layers = [1] * 5
    VisionConfig.embed_dims = [16, 16, 32, 32, 32]
    small = partial(SAMViTConfig, width=32, layers=2, heads=2, global_attn_indexes=())
    deepseekocr.SAMViTConfig = deepseekocr_2.SAMViTConfig = small
    deepseekocr_2_vision.Qwen2EncoderConfig = _two_layers
    # Crops of an image; there may be six, and each has 144 tokens.
    DeepseekOCR2Processor.__call__.__kwdefaults__["max_patches"] = 2


def _two_layers(**said: object) -> Qwen2EncoderConfig:
    return Qwen2EncoderConfig(**{**said, "layers": 2, "intermediate_size": 64})
