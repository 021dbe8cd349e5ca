"""Which tokens of a prompt stand for which image or video, and what each is known by.

Processors put one run of placeholders for an image, or several (rows, tiles, frames), and two
images without a word between them share one. Whatever cannot be told apart is one medium: then
less is shared between prompts, and nothing wrongly.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from bushel.core import Media, Prepared
from bushel.core.video import Video
from bushel.models.vision.image_spans import Span

Shape = tuple[str, tuple[int, int], int]  # "image" or "video", width and height, frames

_GRIDS = {"image": ("image_grid_thw", "image_grid_hws"), "video": ("video_grid_thw",)}


def kind_of(item: Any) -> str:
    return "video" if isinstance(item, Video) else "image"


def frames_of(item: Any) -> Sequence[Any]:
    return item.frames if isinstance(item, Video) else [item]


def shape_of(item: Any) -> Shape:
    frames = frames_of(item)
    return kind_of(item), frames[0].size, len(frames)


def place(
    prompt: Prepared,
    runs: Sequence[Span],
    items: Sequence[Any],
    settings: str,
    blank: Callable[[Shape], int],
) -> tuple[Media, ...]:
    """The media of a prompt, in its order.

    runs: where its placeholders are. items: images and videos, as decoded. blank: how
    many placeholders an image or video of some shape has when it is alone.
    """
    if not runs:
        spans: list[Span] | None = None
        whole = (0, len(prompt.ids))
    else:
        spans = _spans(prompt.tensors, runs, items, blank)
        whole = (runs[0][0], runs[-1][1])
    if spans is None:
        digest = hashlib.sha256()
        for item in items:
            digest.update(digest_of(item, settings, 0).encode())
        return (Media(*whole, digest.hexdigest()),)
    return tuple(
        Media(low, high, digest_of(item, settings, high - low))
        for (low, high), item in zip(spans, items, strict=True)
    )


def _spans(
    tensors: Mapping[str, Any],
    runs: Sequence[Span],
    items: Sequence[Any],
    blank: Callable[[Shape], int],
) -> list[Span] | None:
    if len(runs) == len(items):
        return list(runs)
    if len(items) == 1:
        return [(runs[0][0], runs[-1][1])]
    total = sum(high - low for low, high in runs)
    by_grid = _dealt(runs, _by_grid(tensors, total, [kind_of(item) for item in items]))
    return by_grid or _dealt(runs, [blank(shape_of(item)) for item in items])


def _by_grid(tensors: Mapping[str, Any], total: int, kinds: Sequence[str]) -> list[int]:
    """Placeholders of each, where patches come in packs of a fixed number per placeholder."""
    grids = {
        kind: np.asarray(tensors[name]).prod(-1).tolist()
        for kind, names in _GRIDS.items()
        for name in names
        if tensors.get(name) is not None
    }
    if any(len(grids.get(kind, ())) != kinds.count(kind) for kind in set(kinds)):
        return []
    told = {kind: iter(patches) for kind, patches in grids.items()}
    patches = np.array([next(told[kind]) for kind in kinds])
    each = int(patches.sum()) // total
    if each * total != patches.sum() or (patches % each).any():
        return []
    return [int(number) for number in patches // each]


def _dealt(runs: Sequence[Span], counts: Sequence[int]) -> list[Span] | None:
    """The runs' tokens dealt out in order; None if that does not come out even."""
    places = np.concatenate([np.arange(low, high) for low, high in runs])
    if not counts or min(counts) < 1 or sum(counts) != len(places):
        return None
    borders = np.cumsum([0, *counts])
    return [(int(places[low]), int(places[high - 1]) + 1) for low, high in pairwise(borders)]


def digest_of(item: Any, settings: str, tokens: int) -> str:
    """Over kind, mode, size, pixels and time of every frame, and what the processor is set to.

    tokens: how many it became. Some processors cut an image up only where it is alone.
    """
    digest = hashlib.sha256(f"{settings} {tokens}".encode())
    if isinstance(item, Video):  # the model is told when in it a frame is
        digest.update(json.dumps([item.indices, item.total, item.fps]).encode())
    for frame in frames_of(item):
        digest.update(json.dumps([kind_of(item), frame.mode, *frame.size]).encode())
        digest.update(np.ascontiguousarray(frame).data)
    return digest.hexdigest()


def settings_of(processor: Any) -> str:
    """What shapes the pixels that a model sees, as text that is the same in every process."""
    owners = [
        processor,
        *(getattr(processor, name, None) for name in ("image_processor", "video_processor")),
    ]
    return json.dumps(
        [[type(owner).__name__, _plain(_written(owner))] for owner in owners], sort_keys=True
    )


def _written(owner: Any) -> Mapping[str, Any]:
    """Its own words if it has any. A processor's also tell of its tokenizer and template."""
    if hasattr(owner, "to_dict") and not hasattr(owner, "tokenizer"):
        return dict(owner.to_dict())
    kept = (str, int, float, list, tuple, dict)
    settings = getattr(owner, "__dict__", {})
    return {k: v for k, v in settings.items() if isinstance(v, kept) and k != "chat_template"}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    # Others show their place in memory.
    return value if isinstance(value, str | int | float | None) else type(value).__name__
