"""What drafts cost in memory, beside rows that go on token by token: for the plan at load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from bushel.core.footprint import Footprint, Piece
from bushel.engine.drafts.cost_profile import CostProfile
from bushel.engine.drafts.depth import depths
from bushel.engine.drafts.draft_model import WIDEST
from bushel.engine.footprint import footprint
from bushel.models import Model
from bushel.models.mtp import HeadKVCache, MTPHead

_PER_DRAFT_LOGIT = 8  # bytes: a draft is the best of a row's logits, in float32 at most


def with_drafts(plain: Footprint, model: Model, profile: CostProfile) -> Footprint:
    """plain: sizes of the same model, rows that take drafts among its pieces already."""
    drafted = replace(plain, drafts=most_drafts(profile) * (plain.per_row + plain.per_token))
    head = model.mtp
    if head is None:
        return drafted
    leaves: Any = tree_flatten(head.parameters)
    return replace(
        drafted,
        weights=drafted.weights + sum(leaf.nbytes for _, leaf in leaves),
        weight_buffers=drafted.weight_buffers + len(leaves),
        pieces=(*drafted.pieces, _head_piece(head)),
    )


def with_draft_model(plain: Footprint, draft: Model) -> Footprint:
    """And a second model beside it, which keeps a state of its own for every row."""
    second = footprint(draft, WIDEST)
    return replace(
        plain,
        weights=plain.weights + second.weights,
        weight_buffers=plain.weight_buffers + second.weight_buffers,
        pieces=(*plain.pieces, *second.pieces),
        per_token=max(plain.per_token, second.per_token),
        per_score=max(plain.per_score, second.per_score),
        per_row=plain.per_row + _PER_DRAFT_LOGIT * draft.vocab,
    )


def most_drafts(profile: CostProfile) -> int:
    """Of all rows together, in one pass: if all hold, as many as pay for any number of rows."""
    counts = range(1, len(profile.seconds) + 1)
    return max(sum(depths([[1.0] * profile.deepest] * rows, profile)) for rows in counts)


def _head_piece(head: MTPHead) -> Piece:
    """Keys and values of one row in a head's layer."""
    cache, width = HeadKVCache(1), head.block.norm.weight.shape[0]
    head(mx.zeros((1, 1, width)), mx.zeros((1, 1), mx.uint32), [0], [0], cache)
    held = sum(array.nbytes for array in cache.arrays)
    slots = max(array.shape[2] for array in cache.arrays)
    return Piece(per_token=held // slots, buffers=len(cache.arrays))
