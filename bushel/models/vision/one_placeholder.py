"""Networks that want one id in the place of an image, or ids that no vocabulary has.

library   text [-200]                text      what the processor writes and the network takes
prompt    text [pad] [pad] … [pad]   text      what everybody else sees: an id per row of features
bounds         ^---------------^

So the rows of a prompt can be counted, cut and kept as those of any other family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Any

import numpy as np

BOUNDS = "image_bound"  # as minicpm's processor names them: a list of one array [images, 2]

Ids = list[int]
Counts = Callable[[Any, Mapping[str, Any]], list[int]]


@dataclass(frozen=True)
class Form:
    """How a family marks an image. counts: rows of features of each; None: as many as its ids."""

    mark: int | None = None  # the config's own if None
    counts: Counts | None = None

    def marks(self, token: int) -> bool:
        return token == self.mark or (self.counts is None and token < 0)


def _valid_patches(_: Any, tensors: Mapping[str, Any]) -> list[int]:
    return [int(valid.sum()) for valid in np.asarray(tensors["pixel_attention_mask"])]


def _whole_grid(config: Any, tensors: Mapping[str, Any]) -> list[int]:
    tower = config.vision_config
    return [(tower.image_size // tower.patch_size) ** 2] * len(tensors["pixel_values"])


_FORMS = {
    "multi_modality": Form(counts=_whole_grid),
    "phi3_v": Form(mark=-1),
    "phi4_siglip": Form(mark=-200, counts=_valid_patches),
    "phi4mm": Form(counts=_valid_patches),
}


# Families whose networks take one image, and lose any other or fail.
_ONE_IMAGE = ("moondream2", "moondream3", "paligemma")


def takes_one_image(config: Any) -> bool:
    return _family(config) in _ONE_IMAGE


def _family(config: Any) -> str:
    """By the library's package that the config's class is from."""
    return type(config).__module__.rpartition(".")[0].rpartition(".")[2]


def form_of(config: Any) -> Form | None:
    """None for families whose ids are already what everybody sees."""
    form = _FORMS.get(_family(config))
    if form is None or form.mark is not None:
        return form
    return Form(config.image_token_index, form.counts)


def spread(
    form: Form, config: Any, ids: Sequence[int], tensors: Mapping[str, Any]
) -> tuple[Ids, np.ndarray]:
    """The prompt's ids, of the library's, and the bounds [images, 2] of every place in them.

    Whoever asks looks whether there are as many places as images.
    """
    counts = iter(form.counts(config, tensors)) if form.counts is not None else repeat(0)
    prompt, bounds = list[int](), list[list[int]]()
    for token, run in groupby(ids):
        own = list(run)
        if not form.marks(token):
            prompt += own
            continue
        # Ids that are there already are one image; marks that stand together are one each.
        rows = [len(own)] if form.counts is None else [next(counts, 1) for _ in own]
        for count in rows:
            bounds.append([len(prompt), len(prompt) + count])
            prompt += [0] * count
    return prompt, np.array(bounds).reshape(-1, 2)


def gathered(form: Form, ids: Sequence[int], bounds: np.ndarray) -> Ids:
    """The library's ids, of the prompt's."""
    assert form.mark is not None
    kept, last = list[int](), 0
    for low, high in bounds.tolist():
        count = 1 if form.counts is not None else high - low
        kept += [*ids[last:low], *[form.mark] * count]
        last = high
    return [*kept, *ids[last:]]
