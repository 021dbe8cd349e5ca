"""Vocabularies in two tables, as Molmo has them: its tokens, and some that were added later.

The library joins both tables in every step, or once and for good: a copy of the larger one, which
is a gigabyte of an 8B model. Here each token is looked up where it is, and logits are joined.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx


def install(network: Any) -> None:
    for part in network.modules():
        if hasattr(part, "embedding") and hasattr(part, "new_embedding"):
            part.__class__ = _looked_up(part.__class__)
        elif hasattr(part, "output_embeddings") and hasattr(part, "new_output_embeddings"):
            part.__class__ = _joined(part.__class__)


@cache
def _looked_up(library: Any) -> Any:
    class SplitEmbedding(library):
        def __call__(self, x: mx.array) -> mx.array:
            x, count = x.astype(mx.int32), self.embedding.shape[0]
            old = self.embedding[mx.minimum(x, count - 1)]
            new = self.new_embedding[mx.maximum(x - count, 0)]
            return mx.where((x < count)[..., None], old, new)

    return SplitEmbedding


@cache
def _joined(library: Any) -> Any:
    class SplitHead(library):
        def __call__(self, hidden_states: mx.array) -> mx.array:
            tables = self.output_embeddings, self.new_output_embeddings
            return mx.concatenate([hidden_states @ table.T for table in tables], axis=-1)

    return SplitHead
