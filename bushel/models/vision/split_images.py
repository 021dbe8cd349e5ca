"""The tensors of one image, out of those that a processor made of all the images of a prompt.

images   |  1  |      2      |
tiles    |  t  | t  t  t  t  |     an axis counts images, or runs of placeholders, or something
runs     |  r  | r  r  r  r  |     that takes equally many tokens each, such as tiles or patches
tokens   | ··· | ··· ··· ··· |

Nothing says which it is, so whoever cuts by this compares the results once. Where a prompt has
images and videos, the tensors of a kind are cut among the media of that kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from bushel.core import Prepared
from bushel.models.vision.image_spans import BY_COLUMN, Span, runs_inside
from bushel.models.vision.video_time import SECONDS

Counts = tuple[int, ...]  # so many for each image


def tensors_of_each(
    prepared: Prepared, spans: Sequence[Span], kinds: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], frozenset[str]]:
    """Tensors by image, and the names of those that were cut; the others go to every image.

    kinds: of each medium, image or video; where both are there, one gets the tensors of its own.
    """
    if len(set(kinds)) > 1:
        return _by_kind(prepared, spans, kinds)
    media = prepared.media
    if len(media) == 1:
        return [dict(prepared.tensors)], frozenset()
    own = [runs_inside(image, spans) for image in media]
    counts = [
        (1,) * len(media),
        tuple(map(len, own)),
        tuple(sum(high - low for low, high in runs) for runs in own),
    ]
    cut: dict[str, list[Any]] = {}
    for key, value in prepared.tensors.items():
        if key in BY_COLUMN:
            pieces: list[Any] = [value[:, image.start : image.end] for image in media]
        elif key == "image_bound":
            pieces = [
                [np.array(runs).reshape(-1, 2) - image.start]
                for image, runs in zip(media, own, strict=True)
            ]
        else:
            pieces = _divided(value, counts)
        if pieces:
            cut[key] = pieces
    parts = [
        dict(prepared.tensors) | {key: cut[key][at] for key in cut} for at in range(len(media))
    ]
    return parts, frozenset(cut)


def _by_kind(
    prepared: Prepared, spans: Sequence[Span], kinds: Sequence[str]
) -> tuple[list[dict[str, Any]], frozenset[str]]:
    parts: list[dict[str, Any]] = [{} for _ in kinds]
    cut: set[str] = set()
    for kind in set(kinds):
        own = [at for at, other in enumerate(kinds) if other == kind]
        tensors = {
            key: value
            for key, value in prepared.tensors.items()
            if key in BY_COLUMN or kind == ("video" if _is_of_video(key) else "image")
        }
        alone = replace(prepared, tensors=tensors, media=tuple(prepared.media[at] for at in own))
        pieces, names = tensors_of_each(alone, spans)
        for at, piece in zip(own, pieces, strict=True):
            parts[at] = piece
        # Those of one medium need no cut.
        cut |= names if len(own) > 1 else tensors.keys()
    return parts, frozenset(cut)


def _is_of_video(key: str) -> bool:
    return "video" in key or key == SECONDS


def _divided(value: Any, counts: Sequence[Counts]) -> list[Any]:
    """A piece for each image along the first axis, or the second if that is a batch of one."""
    if not isinstance(value, list | np.ndarray) or getattr(value, "ndim", 1) == 0:
        return []
    if each := _shares(len(value), counts):
        return [value[low:high] for low, high in pairwise(np.cumsum([0, *each]).tolist())]
    if len(value) != 1:
        return []
    inner = _divided(value[0], counts)
    return [piece[None] if isinstance(value, np.ndarray) else [piece] for piece in inner]


def _shares(total: int, counts: Sequence[Counts]) -> Counts:
    """How many of `total` belong to each image; nothing if that is unknown or ambiguous."""
    fits = {counts[at] for at in (0, 1) if sum(counts[at]) == total}
    tokens = counts[2]
    if total and sum(tokens) and not any(total * own % sum(tokens) for own in tokens):
        fits.add(tuple(total * own // sum(tokens) for own in tokens))
    return fits.pop() if len(fits) == 1 else ()
