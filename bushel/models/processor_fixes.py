"""Processors of mlx-vlm that fail or leave something out, mended from outside.

A part of a processor is given another class, as parts of a network are in `library_fixes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx


def mend_processor(processor: Any) -> None:
    """Once it is loaded; those that nothing is wrong with stay as they are."""
    for part in (processor, getattr(processor, "image_processor", None)):
        if change := _CHANGES.get(type(part).__name__):
            change(part)


def _without_padding(processor: Any) -> None:
    """LLaVA's gives what is said of texts to the half for images, which refuses it."""
    processor.__class__ = _llava(processor.__class__)


def _with_the_whole(processor: Any) -> None:
    """Llama 4's promises the whole image after its tiles, and does not make it."""
    processor.__class__ = _llama4(processor.__class__)


def _with_its_own_token(processor: Any) -> None:
    """dots.ocr's takes a number for its image token, whatever the vocabulary says."""
    tokenizer = processor.tokenizer
    processor.image_token_id = tokenizer.convert_tokens_to_ids(processor.image_token)


def _with_an_end(processor: Any) -> None:
    """DeepSeek-VL2's network looks for more images until it finds one without tiles."""
    processor.__class__ = _deepseek(processor.__class__)


_CHANGES: dict[str, Callable[[Any], None]] = {
    "DeepseekVLV2Processor": _with_an_end,
    "DotsVLProcessor": _with_its_own_token,
    "Llama4ImageProcessor": _with_the_whole,
    "LlavaProcessor": _without_padding,
}


@cache
def _llava(library: Any) -> Any:
    class LlavaWithoutPadding(library):
        def __call__(self, images: Any = None, text: Any = None, **kwargs: Any) -> Any:
            kwargs.pop("padding", None)
            return super().__call__(images=images, text=text, **kwargs)

    return LlavaWithoutPadding


@cache
def _llama4(library: Any) -> Any:
    class Llama4TilesAndWhole(library):
        def _split_into_tiles(self, image: Any, aspect_ratio: Any) -> list[Any]:
            tiles: list[Any] = super()._split_into_tiles(image, aspect_ratio)
            whole = super()._split_into_tiles(image, (1, 1))
            return tiles + whole if len(tiles) > 1 else tiles

    return Llama4TilesAndWhole


@cache
def _deepseek(library: Any) -> Any:
    class DeepseekWithAnEnd(library):
        def batchify(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            batch: dict[str, Any] = super().batchify(*args, **kwargs)
            crops, tiles = batch["images_spatial_crop"], batch["images"].shape[1]
            batch["images_spatial_crop"] = mx.pad(
                crops, [(0, 0), (0, tiles - crops.shape[1]), (0, 0)]
            )
            return batch

    return DeepseekWithAnEnd
