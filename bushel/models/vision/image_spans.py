"""Where a prompt's pictures are, and what the vision tower makes of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core import Media, Prepared

Span = tuple[int, int]
Embedded = dict[str, Any]  # what the library finds out about a prompt, by the library's own names

EMBEDS, DEEPSTACK, VISIBLE = "inputs_embeds", "deepstack_visual_embeds", "visual_pos_masks"
# Extras with one entry per prompt token, cut by column.
BY_COLUMN = (
    VISIBLE,
    "per_layer_inputs",
    "mm_token_type_ids",
    "token_type_ids",
    DEEPSTACK,  # where it is an array; a list has entries for images alone
)


def placeholders(config: Any, *kinds: str) -> list[int]:
    owners = (config, getattr(config, "thinker_config", None))
    names = [f"{kind}_token_{end}" for kind in kinds for end in ("id", "index")]
    tokens = (getattr(owner, name, None) for owner in owners for name in names)
    return [token for token in tokens if isinstance(token, int)]


def spans_of(config: Any, prepared: Prepared) -> tuple[Span, ...]:
    """Runs of placeholders, or the bounds that a processor without a token of its own tells."""
    if not prepared.has_media:
        return ()
    if "image_bound" in prepared.tensors:
        return tuple((int(low), int(high)) for low, high in prepared.tensors["image_bound"][0])
    if "image_type_offsets" in prepared.tensors:  # deepseek_v4: parts of images are no tokens
        starts = prepared.tensors["image_offsets"]
        lengths = np.diff(prepared.tensors["image_type_offsets"])
        pairs = zip(starts, lengths, strict=True)
        return tuple((int(start), int(start + length)) for start, length in pairs)
    inside = _is_placeholder(config, prepared.ids, "image", "video")
    edges = np.flatnonzero(np.diff(np.concatenate([[0], inside.astype(np.int8), [0]])))
    return tuple((int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))


def runs_inside(media: Media, spans: Iterable[Span]) -> list[Span]:
    """The placeholders of one image: there may be text among them, as between tiles or rows."""
    clipped = [(max(low, media.start), min(high, media.end)) for low, high in spans]
    return [(low, high) for low, high in clipped if low < high]


def patches_per_token(config: Any, ids: Any, tensors: Mapping[str, Any]) -> int:
    """Of a prompt whose images are packed, one after the other, into rows of patches; else 0."""
    grids, pixels = tensors.get("image_grid_thw"), tensors.get("pixel_values")
    if grids is None or pixels is None or tensors.get("video_grid_thw") is not None:
        return 0
    patches = np.asarray(grids).prod(-1)
    places = int(_is_placeholder(config, ids, "image").sum())
    if getattr(pixels, "ndim", 0) != 2 or len(pixels) != patches.sum() or not places:
        return 0
    each = len(pixels) // places
    # Others have tokens that stand for no patches, such as the ends of rows.
    return each if each * places == len(pixels) and not (patches % each).any() else 0


def encode_each(network: Any, ids: mx.array, tensors: Mapping[str, Any]) -> Embedded:
    """What the library finds out about a prompt with several images, but each seen by itself.

    Together they would look at one another in some towers: glm4v's tells only the first two
    apart. Nothing where the images are not packed patches, or where there is one.
    """
    per_token = patches_per_token(network.config, ids, tensors)
    if not per_token or len(tensors["image_grid_thw"]) < 2:
        return {}
    grids, pixels = tensors["image_grid_thw"], tensors["pixel_values"]
    places = np.flatnonzero(_is_placeholder(network.config, ids[0], "image"))
    borders = np.cumsum([0, *np.asarray(grids).prod(-1)])
    images = []
    for at, (low, high) in enumerate(pairwise(borders)):
        own = ids[:, mx.array(places[low // per_token : high // per_token])]
        images.append(
            network.get_input_embeddings(
                own, pixels[low:high], mask=mx.ones_like(own), image_grid_thw=grids[at : at + 1]
            )
        )
    whole = network.get_input_embeddings(ids, None, mask=mx.ones_like(ids))
    where = mx.array(places)
    embeds = _placed(whole.inputs_embeds, where, [image.inputs_embeds for image in images])
    layers = [image.deepstack_visual_embeds for image in images]
    if layers[0] is None:
        return {EMBEDS: embeds}
    if isinstance(layers[0], mx.array):
        deepstack: Any = _placed(whole.deepstack_visual_embeds, where, layers)
    else:
        columns = zip(*map(layers_of, layers), strict=True)
        deepstack = [mx.concatenate(list(column)) for column in columns]
    visible = mx.array(_is_placeholder(network.config, ids, "image"))
    return {EMBEDS: embeds, DEEPSTACK: deepstack, VISIBLE: visible}


def layers_of(deepstack: Any) -> list[mx.array]:
    """Features per layer, of image tokens alone: a list, or one in a dataclass with the mask."""
    if isinstance(deepstack, mx.array):
        return []
    return list(getattr(deepstack, "embeddings", deepstack) or ())


def visible_before(masks: mx.array) -> list[int]:
    """How many rows of such layers belong to tokens before each, and before the end."""
    visible = np.asarray(masks).reshape(masks.shape[1], -1)[:, 0]
    return [0, *np.cumsum(visible).tolist()]


def _placed(text: mx.array, where: mx.array, images: list[mx.array]) -> mx.array:
    """`text` [1, L, …], with what was found for the images at their tokens."""
    text[:, where] = mx.concatenate(images, axis=1)
    return text


def _is_placeholder(config: Any, ids: Any, *kinds: str) -> np.ndarray:
    return np.isin(np.asarray(ids), placeholders(config, *kinds))


def to_host(value: Any) -> Any:
    if isinstance(value, list):
        return [to_host(item) for item in value]
    return np.asarray(value) if isinstance(value, mx.array) else value
