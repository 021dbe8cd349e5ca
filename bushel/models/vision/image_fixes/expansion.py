"""FastVLM and Bunny: the network makes room for an image, where others' processors do.

processor   What is [img] ?                 one placeholder, which is no token id
prompt      What is [ - - - - - - ] ?       a place for each feature, whose bounds go with it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core import Prepared, RequestError
from bushel.models.vision.image_fixes.places import put_images

_FAMILIES = ("fastvlm", "llava_bunny")
_BOUNDS = "image_bound"  # as the processors say that tell bounds themselves


def make_room(config: Any, prompt: Prepared, filler: int) -> Prepared:
    """A prompt as long as it will be inside the network; others as they are.

    config: as mlx-vlm reads it. filler: a token that says nothing.
    """
    if type(config).__module__.split(".")[-2] not in _FAMILIES:
        return prompt
    pixels, ids = prompt.tensors["pixel_values"], np.array(prompt.ids)
    inside = ids == config.image_token_index
    if inside.sum() != len(pixels):
        raise RequestError(
            f"The prompt has places for {inside.sum()} of {len(pixels)} images.",
            code="unsupported_media",
            param="messages",
        )
    patch = config.vision_config.patch_size
    each = (pixels.shape[-2] // patch) * (pixels.shape[-1] // patch)
    starts = np.flatnonzero(inside) + (each - 1) * np.arange(len(pixels))
    wide = np.repeat(np.where(inside, filler, ids), np.where(inside, each, 1))
    bounds = [np.stack([starts, starts + each], axis=1)]
    return replace(prompt, ids=tuple(wide.tolist()), tensors={**prompt.tensors, _BOUNDS: bounds})


def install(network: Any, config: Mapping[str, Any]) -> None:
    put_images(network, _in_given_places)


def _in_given_places(
    network: Any, look: Any, embeds: mx.array, ids: mx.array, pixel_values: Any, **told: Any
) -> None:
    # One at a time, after a token: the library counts wrongly where there are several.
    one = mx.array([[0, network.config.image_token_index]])
    images = [look(one, image[None]).inputs_embeds[:, 1:] for image in pixel_values]
    bounds = np.asarray(told[_BOUNDS][0]).tolist()
    places = np.concatenate([np.arange(low, high) for low, high in bounds])
    embeds[:, mx.array(places)] = mx.concatenate(images, axis=1)
