"""Prompts with images, a place for what was made of them, and a spy on the vision tower."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from PIL import Image

from bushel.core import Prepared
from bushel.models import load
from bushel.models.vision.vision_model import VisionModel
from tests.families import checkpoint_dir
from tests.families.vision import VISION

_TOWERS = ("vision_tower", "vision_model", "visual", "vision", "vision_embedder")


class Shelf(dict[str, Mapping[str, mx.array]]):
    """Features, kept without limits."""

    def put(self, digest: str, arrays: Mapping[str, mx.array]) -> None:
        self[digest] = arrays


def loaded(name: str) -> VisionModel:
    model = load(str(checkpoint_dir(name)))
    assert isinstance(model, VisionModel)
    return model


def prompt(model: VisionModel, *said: str | Image.Image) -> Prepared:
    place = VISION[model.name].placeholder
    text = "".join(part if isinstance(part, str) else place for part in said)
    images = [part for part in said if not isinstance(part, str)]
    whole = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return model.host.prepare(whole, images)


@contextmanager
def watched(model: VisionModel) -> Iterator[list[int]]:
    """The sizes of what the vision tower is called with."""
    target, calls, inside = _tower(model), list[int](), list[bool]()
    kind, call = type(target), type(target).__call__

    def spy(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if module is not target or inside:
            return call(module, *args, **kwargs)
        arrays = [it for _, it in tree_flatten([args, kwargs]) if isinstance(it, mx.array)]
        calls.append(max(array.size for array in arrays))
        inside.append(True)  # gemma4's calls itself, image by image
        try:
            return call(module, *args, **kwargs)
        finally:
            inside.clear()

    with patch.object(kind, "__call__", spy):
        yield calls


def _tower(model: VisionModel) -> nn.Module:
    owner = getattr(model.network, "thinker", model.network)
    found = next(getattr(owner, name) for name in _TOWERS if hasattr(owner, name))
    if model.name.startswith("minicpmv"):  # it runs the tower's parts itself
        found = found.embeddings
    assert isinstance(found, nn.Module)
    return found


def splices(model: VisionModel) -> bool | None:
    """Whether prompts are put together of images that are known; None: not tried yet."""
    recall = model.recall
    return not recall.reason if recall._proven else None
