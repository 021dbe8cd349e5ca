"""Where a prompt's pictures are, and what the vision tower makes of each."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core import Prepared

Span = tuple[int, int]


def placeholders(config: Any, *kinds: str) -> list[int]:
    owners = (config, getattr(config, "thinker_config", None))
    names = [f"{kind}_token_{end}" for kind in kinds for end in ("id", "index")]
    found = (getattr(owner, name, None) for owner in owners for name in names)
    return [token for token in found if isinstance(token, int)]


def spans_of(config: Any, prepared: Prepared) -> tuple[Span, ...]:
    """Runs of placeholders, or the bounds that a processor without a token of its own tells."""
    if not prepared.has_media:
        return ()
    if "image_bound" in prepared.tensors:
        return tuple((int(low), int(high)) for low, high in prepared.tensors["image_bound"][0])
    inside = _is_placeholder(config, prepared.ids, "image", "video")
    edges = np.flatnonzero(np.diff(np.concatenate([[0], inside.astype(np.int8), [0]])))
    return tuple((int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))


def encode_each(network: Any, ids: mx.array, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """What the library finds out about a prompt with several images, but each seen by itself.

    Together they would look at one another in some towers: glm4v's tells only the first two
    apart. Nothing where the images are not packed patches, or where there is one.
    """
    grids, pixels = tensors.get("image_grid_thw"), tensors.get("pixel_values")
    if grids is None or len(grids) < 2 or tensors.get("video_grid_thw") is not None:
        return {}
    patches = np.asarray(grids).prod(-1)
    places = np.flatnonzero(_is_placeholder(network.config, ids[0], "image"))
    if pixels is None or pixels.ndim != 2 or len(pixels) != patches.sum() or not len(places):
        return {}
    per_token = len(pixels) // len(places)
    if per_token * len(places) != len(pixels) or (patches % per_token).any():
        return {}  # tokens that stand for no patches, such as the ends of rows
    borders = np.cumsum([0, *patches])
    found = []
    for at, (low, high) in enumerate(pairwise(borders)):
        own = ids[:, mx.array(places[low // per_token : high // per_token])]
        found.append(
            network.get_input_embeddings(
                own, pixels[low:high], mask=mx.ones_like(own), image_grid_thw=grids[at : at + 1]
            )
        )
    whole = network.get_input_embeddings(ids, None, mask=mx.ones_like(ids))
    where = mx.array(places)
    embeds = _placed(whole.inputs_embeds, where, [it.inputs_embeds for it in found])
    layers = [it.deepstack_visual_embeds for it in found]
    if layers[0] is None:
        return {"inputs_embeds": embeds}
    if isinstance(layers[0], mx.array):
        deepstack: Any = _placed(whole.deepstack_visual_embeds, where, layers)
    else:
        columns = zip(*map(layers_of, layers), strict=True)
        deepstack = [mx.concatenate(list(column)) for column in columns]
    visible = mx.array(_is_placeholder(network.config, ids, "image"))
    return {
        "inputs_embeds": embeds,
        "deepstack_visual_embeds": deepstack,
        "visual_pos_masks": visible,
    }


def layers_of(deepstack: Any) -> list[mx.array]:
    """Features per layer: a plain list, or one inside a dataclass that repeats the mask."""
    return list(getattr(deepstack, "embeddings", deepstack) or ())


def _placed(text: mx.array, where: mx.array, found: list[mx.array]) -> mx.array:
    """`text` [1, L, …], with what was found for the images at their tokens."""
    text[:, where] = mx.concatenate(found, axis=1)
    return text


def _is_placeholder(config: Any, ids: Any, *kinds: str) -> np.ndarray:
    return np.isin(np.asarray(ids), placeholders(config, *kinds))


def to_host(value: Any) -> Any:
    if isinstance(value, list):
        return [to_host(item) for item in value]
    return np.asarray(value) if isinstance(value, mx.array) else value
