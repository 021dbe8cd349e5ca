"""Qwen 4: the mask of its sparse attention, by row: each keeps its own choice of blocks.

Where rows are of different lengths the library says "left_padded_decode" instead of a mask, and its
attention then looks at everything, whatever the row has chosen.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import mlx.core as mx

from bushel.models.row_positions.qwen4_exp_blocks import with_blocks_by_row


def install(network: Any) -> None:
    language = network.language_model
    language.__class__ = _with_steps_by_row(language.__class__)
    for layer in language.model.layers:
        if not layer.is_linear:
            attention = layer.self_attn
            attention.__class__ = _with_masks_by_row(attention.__class__)
            attention.indexer.__class__ = with_blocks_by_row(attention.indexer.__class__)


@cache
def _with_steps_by_row(library: Any) -> Any:
    module = sys.modules[library.__module__]
    steps = _steps_by_row(module.Qwen4ExpBatchInvariantForward)

    class Qwen4ByRow(library):
        def _batch_invariant_decode(self, inputs: mx.array, **kwargs: Any) -> Any:
            return steps(self, inputs, **kwargs)

        def _supports_batch_invariant_decode(self) -> bool:
            # Such a step goes past the body, which whoever records hidden states needs to be run.
            recorded = type(self.model) is not module.Qwen4ExpModel
            return not recorded and bool(super()._supports_batch_invariant_decode())

    return Qwen4ByRow


def _steps_by_row(library: Any) -> Any:
    """How the library runs one token of each row."""

    class StepsByRow(library):
        def _model(
            self, model: Any, inputs: mx.array, states: Any, embeds: Any, positions: Any
        ) -> mx.array:
            h = model.embed_tokens(inputs) if embeds is None else embeds
            h = mx.tile(h, (1, 1, model.args.hc_count))
            sparse = states[model.fa_idx]
            begun, several = not sparse.empty(), isinstance(sparse.offset, mx.array)
            mask = sparse.make_mask(inputs.shape[1]) if several else None
            for layer, state in zip(model.layers, states, strict=True):
                own = None if layer.is_linear else mask
                h = self._layer(layer, h, inputs, own, state, positions)
                # The n-gram embedding waits for the tokens, so that a device which gets its work
                # at the end of all layers would have had nothing to do. A first token may be a
                # look at shapes, for which no weight shall be read.
                if begun:
                    mx.async_eval(h)
            return h

    return StepsByRow()


@cache
def _with_masks_by_row(library: Any) -> Any:
    """Attention of other passes: of one token, too, where the library has no such step."""

    class SparseByRow(library):
        def __call__(
            self, x: mx.array, mask: Any = None, cache: Any = None, *args: Any, **kwargs: Any
        ) -> mx.array:
            if isinstance(mask, str) and mask == "left_padded_decode":
                mask = cache.make_mask(x.shape[1])
            return super().__call__(x, mask, cache, *args, **kwargs)

    return SparseByRow
