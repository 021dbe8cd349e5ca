"""DeepSeek-OCR, both versions: every image of a prompt by itself.

The library takes a prompt's images for those of several prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.models.vision.image_fixes.places import image_places, put_images

# Features of a crop of 640 pixels have so many rows and columns; one of 768 pixels has so many.
_SIDE, _EACH = 10, 144
# The whole image: rows and columns of features, and something that tells it from the crops.
_WHOLE_SIDE, _SEPARATOR = 16, 1


def install(network: Any, config: Mapping[str, Any]) -> None:
    put_images(network, _each_by_itself)


def _each_by_itself(
    network: Any,
    look: Any,
    embeds: mx.array,
    ids: mx.array,
    pixel_values: Any,
    *,
    images_spatial_crop: Any,
    **_: Any,
) -> None:
    # As the processor makes them; on their way here they had to be of a wider type.
    crops, wholes = (pixels.astype(mx.bfloat16) for pixels in pixel_values)
    places, done, first = image_places(network, ids), 0, 0
    for at, grid in enumerate(np.asarray(images_spatial_crop).tolist()):
        count, tokens = _counts(network, *grid)
        own = mx.array(places[done : done + tokens])
        image = look(
            ids[:, own],
            [crops[first : first + count], wholes[at : at + 1]],
            images_spatial_crop=mx.array([grid]),
            images_seq_mask=mx.ones((1, tokens), mx.bool_),
        )
        embeds[:, own] = image.inputs_embeds
        done, first = done + tokens, first + count


def _counts(network: Any, across: int, down: int) -> tuple[int, int]:
    """Crops and image tokens of an image; the first version makes none of a small one."""
    if not hasattr(network, "image_newline"):
        whole = _WHOLE_SIDE**2 + _SEPARATOR
        return across * down, across * down * _EACH + whole
    whole = _WHOLE_SIDE * (_WHOLE_SIDE + 1) + _SEPARATOR
    if across * down == 1:
        return 0, whole
    return across * down, whole + (_SIDE * across + 1) * _SIDE * down
