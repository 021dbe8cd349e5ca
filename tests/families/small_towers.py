"""Vision towers that the library knows in one size only, made small for the tests' process."""

from functools import partial

from mlx_vlm.models.deepseekocr import deepseekocr
from mlx_vlm.models.deepseekocr.config import SAMViTConfig
from mlx_vlm.models.deepseekocr_2 import deepseekocr_2
from mlx_vlm.models.deepseekocr_2 import vision as deepseekocr_2_vision
from mlx_vlm.models.deepseekocr_2.config import Qwen2EncoderConfig
from mlx_vlm.models.deepseekocr_2.processing_deepseekocr import DeepseekOCR2Processor
from mlx_vlm.models.fastvlm.config import VisionConfig
from mlx_vlm.models.gemma3n import vision as gemma3n_vision


def shrink() -> None:
    """Before a checkpoint of one of these families is made or loaded."""
    # Its stages are no fields of the config, so that no checkpoint can set them.
    VisionConfig.layers = [1] * 5
    VisionConfig.embed_dims = [16, 16, 32, 32, 32]
    small = partial(SAMViTConfig, width=32, layers=2, heads=2, global_attn_indexes=())
    deepseekocr.SAMViTConfig = deepseekocr_2.SAMViTConfig = small
    deepseekocr_2_vision.Qwen2EncoderConfig = _two_layers
    gemma3n_vision.gemma3n_mobilenet_def = _one_block_a_stage
    joined = gemma3n_vision.MobileNetV5MultiScaleFusionAdapter
    gemma3n_vision.MobileNetV5MultiScaleFusionAdapter = lambda **_: joined([48], 32, (2, 2))
    # Crops of an image; there may be six, and each has 144 tokens.
    DeepseekOCR2Processor.__call__.__kwdefaults__["max_patches"] = 2


def _two_layers(**said: object) -> Qwen2EncoderConfig:
    return Qwen2EncoderConfig(**{**said, "layers": 2, "intermediate_size": 64})


def _one_block_a_stage() -> list[list[object]]:
    """Of 64 pixels, two by two places are left; the last two stages, of 16 and 32, are joined."""
    return [
        [gemma3n_vision._er(3, 16, 2)],
        [gemma3n_vision._uir(3, 5, 16, 2, 2.0)],
        [gemma3n_vision._uir(3, 3, 16, 2, 2.0), gemma3n_vision._mmqa(2, 8, 1)],
        [gemma3n_vision._uir(3, 3, 32, 2, 2.0), gemma3n_vision._mmqa(2, 8, 1)],
    ]
