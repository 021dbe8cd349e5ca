"""PaliGemma: all tokens of a prompt see one another, and the tokens behind it those before them.

whole   p0 p1 … p(L-2) p(L-1)     run together: each sees the last
kept    p0 p1 … p(L-2)            the last is the row's first decode step, which sees them all

The library masks nothing, so that tokens behind the prompt would see those that follow them, and
rows of a batch what pads them.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.models.known_families import family_of


def install(network: Any) -> None:
    place_features(network)
    if looks_ahead(network):
        language = network.language_model
        language.__class__ = _with_masks(language.__class__)


def place_features(network: Any) -> None:
    """A picture is seen wherever it stands: the library counts its rows from the prompt's start."""
    library = network._prepare_inputs_for_multimodal

    def placed(features: mx.array, embeds: mx.array, ids: mx.array, mask: mx.array) -> Any:
        whole, masks = library(features, embeds, ids, mask)
        places = np.flatnonzero(np.asarray(ids[0]) == network.config.image_token_index)
        rows = features[:, : len(places)] / network.config.hidden_size**0.5
        whole[:, mx.array(places)] = rows.astype(whole.dtype)
        return whole, masks

    network._prepare_inputs_for_multimodal = placed


def looks_ahead(network: Any) -> bool:
    """Whether a prompt's tokens see those behind them: then it is run whole, with its last."""
    if family_of(network) != "paligemma":
        return False
    return bool(network.config.text_config.use_bidirectional_attention)


@cache
def _with_masks(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class MaskedLanguageModel(library):
        def __call__(self, inputs: mx.array, *args: Any, **kwargs: Any) -> Any:
            state = kwargs.get("cache")
            if not args and kwargs.get("inputs_embeds") is None and state:
                # Gemma 2 adds it to scores of its own; the first Gemma asks MLX, and rows in pages.
                added = self.config.model_type != "gemma"
                masked = module.create_attention_mask
                kwargs["mask"] = masked(inputs, state[0], return_array=added)
            return super().__call__(inputs, *args, **kwargs)

    return MaskedLanguageModel
