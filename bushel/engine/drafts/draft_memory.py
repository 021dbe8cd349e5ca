"""What drafts cost in memory, beside rows that go on token by token: for the plan at load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from bushel.core.footprint import STEP, Footprint, LayerFootprint, Memory
from bushel.engine import footprint
from bushel.engine.drafts.cost_profile import MOST_DRAFTS, CostProfile
from bushel.engine.drafts.draft_length import draft_lengths
from bushel.engine.drafts.head_context import RECENT, UNREAD
from bushel.engine.drafts.speculation import Speculation
from bushel.models import Model
from bushel.models.mtp import HeadKVCache, MTPHead

# Of what the weights leave, what a pass that verifies drafts may take beside a plain step.
_SHARE = 1 / 16
_NO_LIMIT = 1 << 62
_LONGEST = 1 << 20  # tokens of a row, where the model names no end


def plan_memory(
    model: Model, speculation: Speculation, usable: int
) -> tuple[Speculation, Footprint]:
    """A model's sizes with as many drafts in one pass as there is room for, or with none.

    Nothing that could be served without them is refused because of them.
    """
    if speculation.profile is None:
        return speculation, footprint.footprint(model)
    columns = 1 + speculation.profile.deepest
    sizes = _with_head(footprint.footprint(model, columns), model.mtp)
    if speculation.draft is not None:
        sizes = _beside(sizes, footprint.footprint(speculation.draft, columns))
    longest = Memory(sizes, usable, _NO_LIMIT).longest_row(1, STEP, model.context or _LONGEST)
    room = int(_SHARE * (usable - sizes.weights)) // sizes.token_with_logits(longest)
    most = min(MOST_DRAFTS, room, _most_drafts(speculation.profile))
    drafted = replace(sizes, drafts=most)
    if most < 1 or drafted.peak(2, STEP, STEP) > usable:
        speculation.close()
        model.mtp = None
        why = "there is too little memory for drafts"
        return Speculation(why_off=why), footprint.footprint(model)
    return replace(speculation, most=most), drafted


def _with_head(sizes: Footprint, head: MTPHead | None) -> Footprint:
    if head is None:
        return sizes
    leaves: Any = tree_flatten(head.parameters)
    return replace(
        sizes,
        weights=sizes.weights + head.nbytes,
        weight_buffers=sizes.weight_buffers + len(leaves),
        layers=(*sizes.layers, _head_footprint(head)),
    )


def _beside(sizes: Footprint, draft: Footprint) -> Footprint:
    """A model's, and its draft model's rows beside each of its own."""
    return replace(
        sizes,
        weights=sizes.weights + draft.weights,
        weight_buffers=sizes.weight_buffers + draft.weight_buffers,
        layers=(*sizes.layers, *draft.layers),
        per_row=sizes.per_row + draft.per_row,
    )


def _most_drafts(profile: CostProfile) -> int:
    """Of all rows together in one pass, if all of them were accepted."""
    counts = range(1, len(profile.seconds) + 1)
    return max(sum(draft_lengths([[1.0] * profile.deepest] * rows, profile)) for rows in counts)


def _head_footprint(head: MTPHead) -> LayerFootprint:
    """Of one row: keys and values of a head's layer, what it has not read, and what later prompts
    may read.
    """
    cache, width = HeadKVCache(1), head.block.norm.weight.shape[0]
    head(mx.zeros((1, 1, width)), mx.zeros((1, 1), mx.uint32), [0], [0], cache)
    held = sum(array.nbytes for array in cache.arrays)
    slots = max(array.shape[2] for array in cache.arrays)
    states = (UNREAD + 2 * RECENT) * width * head.block.norm.weight.itemsize
    return LayerFootprint(per_token=held // slots, fixed=states, buffers=len(cache.arrays))
