"""Where a prompt's pictures are, and what the vision tower makes of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from bushel.core import Media, Prepared

Span = tuple[int, int]
Embedded = dict[str, Any]  # what the library finds out about a prompt, by the library's own names

EMBEDS, DEEPSTACK, VISIBLE = "inputs_embeds", "deepstack_visual_embeds", "visual_pos_masks"
# Tensors of media that are packed: patches, and a grid for each.
_PACKS = {
    "image": ("pixel_values", "image_grid_thw"),
    "video": ("pixel_values_videos", "video_grid_thw"),
}
# Extras with one entry per prompt token, cut by column.
BY_COLUMN = (
    VISIBLE,
    "per_layer_inputs",
    "mm_token_type_ids",
    "token_type_ids",
    DEEPSTACK,  # where it is an array; a list has entries for images alone
)
# Families that have a token for the end of each row of an image, and for its own ends.
_ENDS_OF_ROWS = ("hunyuan_vl",)


def placeholders(config: Any, *kinds: str) -> list[int]:
    owners = (config, getattr(config, "thinker_config", None))
    ends = ("token_id", "token_index", "patch_id")
    names = [f"{kind}_{end}" for kind in kinds for end in ends]
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
    inside = _without_token(config, prepared)
    return runs_of(config, prepared.ids, "image", "video") if inside is None else _runs(inside)


def runs_of(config: Any, ids: Any, *kinds: str) -> tuple[Span, ...]:
    return _runs(_is_placeholder(config, ids, *kinds))


def _runs(inside: np.ndarray) -> tuple[Span, ...]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], inside.astype(np.int8), [0]])))
    return tuple((int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True))


def _without_token(config: Any, prepared: Prepared) -> np.ndarray | None:
    """Which ids stand for a picture, where the config names no token for it."""
    inside = np.zeros(len(prepared.ids), bool)
    if "image_input_idx" in prepared.tensors:  # molmo: where each patch goes, or a negative number
        patches = np.asarray(prepared.tensors["image_input_idx"])
        inside[patches[patches >= 0]] = True
        return inside
    if "crop_layouts" in prepared.tensors:  # moondream: as many as a crop has, behind the first id
        tower = config.vision_config
        inside[1 : 1 + (tower.crop_size // tower.patch_size) ** 2] = True
        return inside
    return None


def runs_inside(media: Media, spans: Iterable[Span]) -> list[Span]:
    """The placeholders of one image: there may be text among them, as between tiles or rows."""
    clipped = [(max(low, media.start), min(high, media.end)) for low, high in spans]
    return [(low, high) for low, high in clipped if low < high]


class PackedMedia(NamedTuple):
    """Media of one kind, packed one after the other into rows of patches."""

    names: tuple[str, str]  # of the tensors: patches, and a grid for each of the media
    pixels: Any
    grids: Any
    places: list[np.ndarray]  # of each one's placeholders in the prompt

    def each(self) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
        """Places and tensors of one after the other."""
        borders = np.cumsum([0, *np.asarray(self.grids).prod(-1)])
        for at, (low, high) in enumerate(pairwise(borders)):
            tensors = self.pixels[low:high], self.grids[at : at + 1]
            yield self.places[at], dict(zip(self.names, tensors, strict=True))


def packed_media(config: Any, ids: Any, tensors: Mapping[str, Any]) -> list[PackedMedia]:
    """By kind, of a prompt whose media are all packed; otherwise nothing."""
    packs = [
        _packed(config, kind, names, ids, tensors)
        for kind, names in _PACKS.items()
        if any(tensors.get(name) is not None for name in names)
    ]
    return [] if None in packs else [pack for pack in packs if pack is not None]


def _packed(
    config: Any, kind: str, names: tuple[str, str], ids: Any, tensors: Mapping[str, Any]
) -> PackedMedia | None:
    pixels, grids = (tensors.get(name) for name in names)
    if grids is None or pixels is None:
        return None
    patches = np.asarray(grids).prod(-1)
    places = np.flatnonzero(_is_placeholder(config, ids, kind))
    if getattr(pixels, "ndim", 0) != 2 or len(pixels) != patches.sum() or not len(places):
        return None
    if getattr(config, "model_type", "") in _ENDS_OF_ROWS:
        runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
        return PackedMedia(names, pixels, grids, runs) if len(runs) == len(patches) else None
    each = len(pixels) // len(places)
    # Others have tokens that stand for no patches, too.
    if each * len(places) != len(pixels) or (patches % each).any():
        return None
    return PackedMedia(names, pixels, grids, np.split(places, np.cumsum(patches // each)[:-1]))


def encode_each(network: Any, ids: mx.array, tensors: Mapping[str, Any]) -> Embedded:
    """What the library finds out about a prompt with several images or videos, but each seen by
    itself.

    Together they would look at one another in some towers: glm4v's tells only the first two
    apart, hunyuan_vl's none. And of images and videos most networks look at one kind alone. Nothing
    where the media are not packed patches, or where there is one.
    """
    packs = packed_media(network.config, ids, tensors)
    media = [one for pack in packs for one in pack.each()]
    if len(media) < 2:
        return {}
    media.sort(key=lambda one: int(one[0][0]))  # as they are in the prompt
    looks = []
    for places, own in media:
        tokens = ids[:, mx.array(places)]
        pixels = own.pop("pixel_values", None)
        looks.append(network.get_input_embeddings(tokens, pixels, mask=mx.ones_like(tokens), **own))
    whole = network.get_input_embeddings(ids, None, mask=mx.ones_like(ids))
    where = np.concatenate([places for places, _ in media])
    embeds = _placed(whole.inputs_embeds, where, [look.inputs_embeds for look in looks])
    layers = [look.deepstack_visual_embeds for look in looks]
    visible = mx.array(np.isin(np.arange(ids.shape[1]), where)[None])
    if layers[0] is None:
        seen = looks[0].visual_pos_masks is not None  # some networks treat images otherwise
        return {EMBEDS: embeds, VISIBLE: visible} if seen else {EMBEDS: embeds}
    if isinstance(layers[0], mx.array):
        deepstack: Any = _placed(whole.deepstack_visual_embeds, where, layers)
    else:
        columns = zip(*map(layers_of, layers), strict=True)
        deepstack = [mx.concatenate(list(column)) for column in columns]
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


def _placed(text: mx.array, where: np.ndarray, media: list[mx.array]) -> mx.array:
    """`text` [1, L, …], with what was found for the media at their tokens."""
    text[:, mx.array(where)] = mx.concatenate(media, axis=1)
    return text


def _is_placeholder(config: Any, ids: Any, *kinds: str) -> np.ndarray:
    return np.isin(np.asarray(ids), placeholders(config, *kinds))


def to_host(value: Any) -> Any:
    if isinstance(value, list):
        return [to_host(item) for item in value]
    if isinstance(value, mx.array):
        # Which numpy does not know.
        return np.asarray(value.astype(mx.float32) if value.dtype == mx.bfloat16 else value)
    return value
