"""A family as the library loads it, fit to be compared with."""

import inspect
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_vlm
import numpy as np
from mlx_vlm.models.llava_onevision.llava_onevision import Model as OneVision

from bushel.models.known_families import family_of
from bushel.models.processor_fixes import mend_processor
from bushel.models.vision import gemma3n, given_embeddings, prefix_lm

from . import checkpoint_dir
from .vision import VISION


def load_reference(name: str) -> tuple[nn.Module, Any]:
    """Processors that fail are mended on both sides of a comparison, and so are networks that the
    library's own loop cannot run, that see nothing in it, or that read a prompt as no reply.
    """
    model, processor = mlx_vlm.load(str(checkpoint_dir(name)))
    mend_processor(processor)
    family = family_of(model)
    if family == "mistral_large3":
        given_embeddings.install(model)
    elif family == "gemma3n":
        gemma3n.install(model)
    elif family == "paligemma":
        prefix_lm.place_features(model)
    _name_inputs(model.language_model)
    if VISION[name].mended:
        model.config.image_grid_pinpoints = VISION[name].config["image_grid_pinpoints"]
        model.__class__ = _as_one_vision(type(model))
    return model, processor


def _name_inputs(language: nn.Module) -> None:
    """zaya1_vl's has another name for `inputs`: the loop fails on two tokens or more."""
    library = type(language)
    if "inputs" in inspect.signature(library.__call__).parameters:
        return

    class Named(library):
        def __call__(self, inputs: mx.array, **kwargs: Any) -> Any:
            return super().__call__(inputs, **kwargs)

    language.__class__ = Named


def _as_one_vision(library: Any) -> Any:
    """What LLaVA-OneVision's code makes of tiles, which are cut and packed in the same way."""

    class SeenAsOneVision(library):
        max_num_patches = 1 << 20  # it would make fewer of more
        patches_per_side = OneVision.patches_per_side
        _select_features = OneVision._select_features
        pack_image_features = OneVision.pack_image_features
        get_image_features = OneVision.get_image_features

        def get_input_embeddings(
            self, input_ids: Any = None, pixel_values: Any = None, **kwargs: Any
        ) -> Any:
            embedded = super().get_input_embeddings(input_ids)
            if pixel_values is not None:
                places = np.flatnonzero(np.array(input_ids[0]) == self.config.image_token_index)
                features = self.get_image_features(pixel_values, kwargs["image_sizes"])
                embedded.inputs_embeds[:, mx.array(places)] = features
            return embedded

    return SeenAsOneVision
