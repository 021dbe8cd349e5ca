"""Granite 4 Vision: every image of a prompt, and prompts in several chunks.

The library looks at the first image alone, and takes what its layers add to image tokens for the
whole prompt's, where a chunk of it is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.models.vision.image_fixes.anyres import Size, tile_grid, unpadded
from bushel.models.vision.image_fixes.places import image_places
from bushel.models.vision.image_spans import DEEPSTACK, VISIBLE


def install(network: Any, config: Mapping[str, Any]) -> None:
    network.__class__ = _with_every_image(network.__class__)
    body, said = network.language_model.model, network.config
    body.__class__ = _with_chunks(body.__class__)
    layers = [layer for _, layer in said.deepstack_layer_map or ()]
    if said.use_spatial_sampling:
        layers += said.spatial_target_layers or ()
    # What is kept of an image may be used before any is looked at.
    body._deepstack_target_layers = layers


@cache
def _with_every_image(library: Any) -> Any:
    class EveryImage(library):
        __module__ = library.__module__  # by which families are known

        def get_input_embeddings(
            self, input_ids: Any = None, pixel_values: Any = None, **kwargs: Any
        ) -> Any:
            if pixel_values is None:
                return super().get_input_embeddings(input_ids)
            places = image_places(self, input_ids)
            sizes = np.asarray(kwargs["image_sizes"]).reshape(-1, 2).tolist()
            layers, done = [], 0
            for tiles, size in zip(pixel_values, sizes, strict=True):
                count, tokens = self._counts(size)
                own = input_ids[:, mx.array(places[done : done + tokens])]
                image = super().get_input_embeddings(own, tiles[None, :count], image_sizes=[size])
                layers.append(image.deepstack_visual_embeds)
                done += tokens
            visible = mx.array(np.asarray(input_ids) == self.config.image_token_index)
            embeds = super().get_input_embeddings(input_ids).inputs_embeds
            deepstack = mx.zeros((len(layers[0]), *embeds.shape[1:]), embeds.dtype)
            deepstack[:, mx.array(places)] = mx.concatenate(layers, axis=1)
            image.inputs_embeds = mx.where(visible[..., None], mx.zeros_like(embeds), embeds)
            image.deepstack_visual_embeds, image.visual_pos_masks = deepstack, visible
            return image

        def _counts(self, size: Size) -> tuple[int, int]:
            """Tiles and image tokens of an image."""
            vision = self.config.vision_config
            side = vision.image_size // vision.patch_size
            each = int(side * Fraction(self.config.downsample_rate))
            grid = tile_grid(size, self.config.image_grid_pinpoints, vision.image_size)
            rows, columns = (
                len(range(*part.indices(tiles * each)))
                for part, tiles in zip(
                    unpadded(size, *(tiles * each for tiles in grid)), grid, strict=True
                )
            )
            newlines = rows if self.image_newline is not None else 0
            return 1 + grid[0] * grid[1], each * each + rows * columns + newlines

    return EveryImage


@cache
def _with_chunks(library: Any) -> Any:
    class GraniteInChunks(library):
        def __call__(self, inputs: Any, *args: Any, cache: Any = None, **kwargs: Any) -> mx.array:
            before = cache[0].offset if cache and DEEPSTACK in kwargs else 0
            if before:
                kwargs |= {key: _after(before, kwargs[key]) for key in (DEEPSTACK, VISIBLE)}
            found: mx.array = super().__call__(inputs, *args, cache=cache, **kwargs)
            return found

    return GraniteInChunks


def _after(before: int, columns: mx.array) -> mx.array:
    """A chunk's columns, in the places that the library takes them from once more."""
    return mx.pad(columns, [(before if axis == 1 else 0, 0) for axis in range(columns.ndim)])
