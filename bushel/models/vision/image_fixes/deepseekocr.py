"""DeepSeek-OCR, both versions: every image of a prompt by itself.

The library takes a prompt's images for those of several prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np

# Features of a crop of 640 pixels have so many rows and columns; one of 768 pixels has so many.
_SIDE, _EACH = 10, 144
# The whole image: rows and columns of features, and something that tells it from the crops.
_WHOLE_SIDE, _SEPARATOR = 16, 1


def install(network: Any, config: Mapping[str, Any]) -> None:
    network.__class__ = _with_each_by_itself(network.__class__)


@cache
def _with_each_by_itself(library: Any) -> Any:
    class EachByItself(library):
        __module__ = library.__module__  # by which families are known

        def get_input_embeddings(
            self, input_ids: Any = None, pixel_values: Any = None, **kwargs: Any
        ) -> Any:
            embedded = super().get_input_embeddings(input_ids)
            if pixel_values is None:
                return embedded
            # As the processor makes them; on their way here they had to be of a wider type.
            crops, wholes = (pixels.astype(mx.bfloat16) for pixels in pixel_values)
            places = np.flatnonzero(np.asarray(input_ids[0]) == self.config.image_token_index)
            done = first = 0
            for at, grid in enumerate(np.asarray(kwargs["images_spatial_crop"]).tolist()):
                count, tokens = self._counts(*grid)
                own = mx.array(places[done : done + tokens])
                image = super().get_input_embeddings(
                    input_ids[:, own],
                    [crops[first : first + count], wholes[at : at + 1]],
                    images_spatial_crop=mx.array([grid]),
                    images_seq_mask=mx.ones((1, tokens), mx.bool_),
                )
                embedded.inputs_embeds[:, own] = image.inputs_embeds
                done, first = done + tokens, first + count
            return embedded

        def _counts(self, across: int, down: int) -> tuple[int, int]:
            """Crops and image tokens of an image; the first version makes none of a small one."""
            if not hasattr(self, "image_newline"):
                whole = _WHOLE_SIDE**2 + _SEPARATOR
                return across * down, across * down * _EACH + whole
            whole = _WHOLE_SIDE * (_WHOLE_SIDE + 1) + _SEPARATOR
            if across * down == 1:
                return 0, whole
            return across * down, whole + (_SIDE * across + 1) * _SIDE * down

    return EachByItself
