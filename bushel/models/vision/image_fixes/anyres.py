"""LLaVA-NeXT and Granite Vision: an image as tiles beside the whole of it, without padding.

tiles      whole | 1 2 |     each of them patches x patches features
                 | 3 4 |
features   whole, then the rows of all tiles together, cut to the image's shape, a newline after
           each of them

The library's own code puts whole tiles in the places of single features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.models.vision.image_fixes.places import image_places, put_images

Size = Sequence[int]  # height and width


def install(network: Any, config: Mapping[str, Any]) -> None:
    put_images(network, _tiles_in_rows)
    network._grid_pinpoints = config["image_grid_pinpoints"]


def tile_grid(size: Size, pinpoints: Sequence[Size], side: int) -> tuple[int, int]:
    """Rows and columns of tiles."""
    from transformers.image_processing_utils import select_best_resolution

    height, width = select_best_resolution(list(size), pinpoints)
    return height // side, width // side


def unpadded(size: Size, height: int, width: int) -> tuple[slice, slice]:
    """Which rows and columns of so many features show an image of `size`, as processors count."""
    ratio = size[1] / size[0]
    if ratio > width / height:
        rows = int(round(size[0] * (width / size[1]), 7))
        padding = (height - rows) // 2
        return slice(padding, height - padding), slice(width)
    columns = int(round(size[1] * (height / size[0]), 7))
    padding = (width - columns) // 2
    return slice(height), slice(padding, width - padding)


def _tiles_in_rows(
    network: Any,
    look: Any,
    embeds: mx.array,
    ids: mx.array,
    pixel_values: Any,
    *,
    image_sizes: Any,
    **_: Any,
) -> None:
    sizes = np.asarray(image_sizes).reshape(-1, 2).tolist()
    images = [_in_rows(network, *own) for own in zip(pixel_values, sizes, strict=True)]
    places = mx.array(image_places(network, ids))
    embeds[:, places] = mx.concatenate(images).astype(embeds.dtype)


def _in_rows(network: Any, tiles: mx.array, size: Size) -> mx.array:
    vision = network.config.vision_config
    patches = vision.image_size // vision.patch_size
    down, across = tile_grid(size, network._grid_pinpoints, vision.image_size)
    # Tiles beyond these are padding, where another image of the prompt has more.
    whole, *_ = features = _features(network, tiles[: 1 + down * across])
    grid = features[1:].reshape(down, across, patches, patches, -1)
    grid = grid.transpose(0, 2, 1, 3, 4).reshape(down * patches, across * patches, -1)
    grid = grid[unpadded(size, *grid.shape[:2])]
    newlines = mx.broadcast_to(network.image_newline, (len(grid), 1, grid.shape[-1]))
    rows = mx.concatenate([grid, newlines.astype(grid.dtype)], axis=1)
    return mx.concatenate([whole, rows.reshape(-1, rows.shape[-1])])


def _features(network: Any, tiles: mx.array) -> mx.array:
    *_, states = network.vision_tower(tiles.transpose(0, 2, 3, 1), output_hidden_states=True)
    layers = network.vision_feature_layer
    chosen = [states[at] for at in ([layers] if isinstance(layers, int) else layers)]
    if network.vision_feature_select_strategy == "default":
        chosen = [state[:, 1:] for state in chosen]
    found: mx.array = network.multi_modal_projector(mx.concatenate(chosen, axis=-1))
    return found
