"""Processors of checkpoints, where mlx-vlm's own way to one ends at a class that needs torch.

What fails there is swallowed: a checkpoint would be loaded with a bare tokenizer, and images lost.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType


def provide(model_type: str) -> None:
    """What a checkpoint of this type needs for its processor, before it is loaded; idempotent."""
    if model_type in _PROVIDED or importlib.util.find_spec("torch") is not None:
        return
    if model_type == "mistral_large3":
        _mistral_large3()
    elif model_type == "phi4-siglip":
        _phi4_siglip()
    else:
        return
    _PROVIDED.add(model_type)


_PROVIDED: set[str] = set()


def _mistral_large3() -> None:
    """mlx-vlm names none for it, and transformers' own needs torch; that of Mistral 3 does not."""
    from mlx_vlm.models.base import install_auto_processor_patch
    from mlx_vlm.models.mistral3.processing_mistral3 import Mistral3Processor

    install_auto_processor_patch("mistral_large3", Mistral3Processor)


def _phi4_siglip() -> None:
    """mlx-vlm imports the image processor that needs torch, though there is one that does not."""
    from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

    name = "transformers.models.siglip2.image_processing_siglip2"
    module = ModuleType(name)
    module.Siglip2ImageProcessor = Siglip2ImageProcessorPil  # type: ignore[attr-defined]
    sys.modules[name] = module
