"""A network whose images are put into their places by other code than the library's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np

# Of a network, its library's look at ids and pixels, embeddings to write to, ids, and pixels with
# what else the processor tells.
Put = Callable[..., None]


def put_images(network: Any, put: Put) -> None:
    """Texts stay as the library has them."""
    network.__class__ = _with_images_put(network.__class__, put)


@cache
def _with_images_put(library: Any, put: Put) -> Any:
    class ImagesPut(library):
        __module__ = library.__module__  # by which families are known

        def get_input_embeddings(
            self, input_ids: Any = None, pixel_values: Any = None, **kwargs: Any
        ) -> Any:
            look = super().get_input_embeddings
            embedded = look(input_ids)
            if pixel_values is not None:
                put(self, look, embedded.inputs_embeds, input_ids, pixel_values, **kwargs)
            return embedded

    return ImagesPut


def image_places(network: Any, ids: mx.array) -> np.ndarray:
    """Of all placeholders of a prompt."""
    return np.flatnonzero(np.asarray(ids[0]) == network.config.image_token_index)
