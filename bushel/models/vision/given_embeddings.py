"""Mistral Large 3 with pictures: mlx-vlm's text model looks up every id, whatever it is given.

So a picture's placeholders would be run as tokens, and nothing of it would be seen.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx


def install(network: Any) -> None:
    language = network.language_model
    language.__class__ = _taking_embeddings(language.__class__)


@cache
def _taking_embeddings(library: Any) -> Any:
    module = sys.modules[library.__module__]

    class TextOverEmbeddings(library):
        def __call__(
            self,
            inputs: Any = None,
            cache: Any = None,
            inputs_embeds: mx.array | None = None,
            **kwargs: Any,
        ) -> Any:
            if inputs_embeds is None or cache is None:
                return super().__call__(inputs, cache, **kwargs)
            hidden, body = inputs_embeds, self.model
            mask = module.create_attention_mask(hidden, cache[0], return_array=True)
            for layer, state in zip(body.layers, cache, strict=True):
                hidden = layer(hidden, mask, cache=state)
            return module.LanguageModelOutput(logits=self.lm_head(body.norm(hidden)))

    return TextOverEmbeddings
