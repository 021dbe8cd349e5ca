"""What the vision tower made of one image, as rows that fit into any prompt it is in.

glance   tokens … [img img] tag [img img] tokens … [img img] tokens     without any pixels
record             r1  r2       r3  r4              its placeholders' rows, and no other token's
spliced  glance, with the rows of records in the places of their images
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import mlx.core as mx

from bushel.core import Media
from bushel.models.model import Prompt
from bushel.models.vision.image_spans import (
    BY_COLUMN,
    DEEPSTACK,
    EMBEDS,
    VISIBLE,
    Embedded,
    layers_of,
    visible_before,
)

Record = Mapping[str, mx.array]
Places = list[int]  # the placeholders of one image, in a prompt

_LAYER = f"{DEEPSTACK}."
_EQUAL = 1e-6


def record_of(embedded: Embedded, places: Places) -> Record:
    """Copies, so that they do not keep the arrays of the whole prompt alive."""
    where = mx.array(places, dtype=mx.int32)
    rows = {
        key: embedded[key][:, where]
        for key in (EMBEDS, *BY_COLUMN)
        if isinstance(embedded.get(key), mx.array)
    }
    if layers := layers_of(embedded.get(DEEPSTACK)):
        before = visible_before(embedded[VISIBLE])
        seen = [before[at] for at in places if before[at] < before[at + 1]]
        rows |= {
            f"{_LAYER}{at}": layer[mx.array(seen, dtype=mx.int32)]
            for at, layer in enumerate(layers)
        }
    return rows


def spliced(embed_text_only: Embedded, placed: Iterable[tuple[Places, Record]]) -> Embedded:
    """Images without a record keep what the glance has for them."""
    whole, layers = dict(embed_text_only), dict[str, list[mx.array]]()
    length = embed_text_only[EMBEDS].shape[1]
    for places, record in placed:
        where = mx.array(places, dtype=mx.int32)
        for key, rows in record.items():
            if key.startswith(_LAYER):
                layers.setdefault(key, []).append(rows)
                continue
            if key not in whole:
                whole[key] = mx.zeros((len(rows), length, *rows.shape[2:]), rows.dtype)
            whole[key][:, where] = rows
    if layers:
        whole[DEEPSTACK] = [mx.concatenate(rows) for rows in layers.values()]
    return whole


def fits(record: Record, places: Places) -> bool:
    return record[EMBEDS].shape[1] == len(places)


def key_of(media: Media, tensors: Mapping[str, Any]) -> str:
    """The digest; with the shape where others of a prompt may have had an image padded."""
    shapes = [
        shape
        for key in sorted(tensors)
        if key.startswith("pixel")
        for shape in _shapes(tensors[key])
    ]
    if all(len(shape) == 2 for shape in shapes):  # packed patches
        return media.digest
    return _hash([media.digest, *map(str, shapes)])


def joint_keys(media: Sequence[Media]) -> list[str]:
    """Of images that were encoded together, and may have looked at one another."""
    digests = [image.digest for image in media]
    return [_hash([*digests, str(at)]) for at in range(len(media))]


def difference(one: Prompt, other: Prompt, within: float = _EQUAL) -> str:
    """What tells two prompts apart, by more than `within` of the largest number, or nothing."""
    for name in ("ids", "delta", "spans", "uncut", "embeds", "positions"):
        if not _same(getattr(one, name), getattr(other, name), within):
            return name
    if one.extras.keys() != other.extras.keys():
        return ", ".join(sorted(one.extras.keys() ^ other.extras.keys()))
    pairs = ((key, value, other.extras[key]) for key, value in one.extras.items())
    return next((key for key, left, right in pairs if not _same(left, right, within)), "")


def distance(one: Record, other: Record) -> float:
    """How far apart two records are, of the norm; the furthest of their arrays counts."""
    if one.keys() != other.keys() or any(one[key].shape != other[key].shape for key in one):
        return math.inf
    pairs = [[record[key].astype(mx.float32) for record in (one, other)] for key in one]
    norm = mx.linalg.norm
    far = [norm(left - right) / mx.maximum(norm(left), 1e-9) for left, right in pairs]
    return max(float(ratio) for ratio in far)


def _same(one: Any, other: Any, within: float) -> bool:
    """Arrays, alone or in lists, or plain values."""
    if isinstance(one, mx.array) and isinstance(other, mx.array):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        left, right = (array.astype(mx.float32) for array in (one, other))
        return not one.size or bool(mx.abs(left - right).max() <= within * mx.abs(left).max())
    if isinstance(one, list | tuple) and any(isinstance(item, mx.array) for item in one):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_same(*pair, within) for pair in pairs)
    return bool(one == other)


def _shapes(value: Any) -> list[tuple[int, ...]]:
    """Of every array in a list of lists, without batches of one."""
    if isinstance(value, list):
        return [shape for item in value for shape in _shapes(item)]
    shape = tuple(getattr(value, "shape", ()))
    while shape[:1] == (1,):
        shape = shape[1:]
    return [shape]


def _hash(words: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()
