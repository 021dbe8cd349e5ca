"""Mistakes in what drafts see and leave behind, made on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import pytest

from bushel.cache import BatchState
from bushel.cache.paged import attention, sdpa
from bushel.cache.ragged.ragged_caches import RaggedCache, RaggedKVCache, RaggedWindowCache
from bushel.engine.decode_batch import DecodeBatch
from bushel.engine.drafts.drafter import Drafts

Patch = pytest.MonkeyPatch

# -- what is left behind ----------------------------------------------------------------------


def ends_with(patch: Patch, keep: Callable[[int, int], int]) -> None:
    """keep: of a row that keeps so many of its inputs, and had so many, what its state keeps."""
    begin, end = BatchState.begin_draft, BatchState.end_draft
    begun: list[int] = []

    def begin_draft(rows: BatchState, counts: Sequence[int]) -> None:
        begun[:] = counts
        begin(rows, counts)

    def end_draft(rows: BatchState, kept: Sequence[int]) -> None:
        end(rows, [keep(*pair) for pair in zip(kept, begun, strict=True)])

    patch.setattr(BatchState, "begin_draft", begin_draft)
    patch.setattr(BatchState, "end_draft", end_draft)


def one_more(patch: Patch) -> None:
    """The draft that did not hold is kept as well."""
    ends_with(patch, lambda kept, count: min(kept + 1, count))


def one_less(patch: Patch) -> None:
    """The last draft that held is forgotten."""
    ends_with(patch, lambda kept, _: max(kept - 1, 1))


def not_rolled_back(patch: Patch) -> None:
    ends_with(patch, lambda _, count: count)


def stale_token(patch: Patch) -> None:
    """Rows go on from what they said before the last of their drafts."""
    finish = DecodeBatch.finish

    def wrong(batch: DecodeBatch, verify: Any, kept: Sequence[int]) -> None:
        finish(batch, verify, kept)
        batch._next = verify.inputs[:, :1]

    patch.setattr(DecodeBatch, "finish", wrong)


# -- what is seen -------------------------------------------------------------------------------


def one_later(patch: Patch) -> None:
    """A draft is run as if it stood one place further on."""
    verify, where = DecodeBatch.verify, DecodeBatch._where

    def wrong(batch: DecodeBatch, drafts: Drafts) -> Any:
        patch.setattr(DecodeBatch, "_where", lambda own: [at + 1 for at in where(own)])
        try:
            return verify(batch, drafts)
        finally:
            patch.setattr(DecodeBatch, "_where", where)

    patch.setattr(DecodeBatch, "verify", wrong)


def one_ahead(patch: Patch, kind: type[RaggedCache]) -> None:
    """Each token of a draft sees the one behind it, too."""
    make: Callable[..., Any] = kind.make_mask

    def wrong(cache: RaggedCache, N: int, *, return_array: bool = False, **more: Any) -> Any:
        mask = make(cache, N, return_array=return_array or N > 1, **more)
        if N == 1:
            return mask
        return mask | mx.concatenate([mask[..., 1:, :], mask[..., -1:, :]], axis=-2)

    patch.setattr(kind, "make_mask", wrong)


def one_ahead_in_ragged_rows(patch: Patch) -> None:
    one_ahead(patch, RaggedKVCache)


def one_ahead_in_rings(patch: Patch) -> None:
    one_ahead(patch, RaggedWindowCache)


def one_ahead_in_pages(patch: Patch) -> None:
    """Where MLX attends to the pages of one row after the other."""
    row_by_row, of_arrays = sdpa._row_by_row, sdpa._of_arrays

    def attended(queries: mx.array, keys: mx.array, *values: mx.array, **how: Any) -> mx.array:
        width, tokens = queries.shape[2], keys.shape[2]
        if width > 1:
            how["mask"] = mx.tri(width, tokens, tokens - width + 1).astype(mx.bool_)
        made: mx.array = of_arrays(queries, keys, *values, **how)
        return made

    def wrong(*args: Any, **how: Any) -> mx.array:
        with patch.context() as inside:
            inside.setattr(sdpa, "_of_arrays", attended)
            return row_by_row(*args, **how)

    patch.setattr(sdpa, "_row_by_row", wrong)


def one_ahead_in_kernels(patch: Patch) -> None:
    """Where a kernel does, which is compiled after this."""
    source = attention.source

    def wrong(*args: Any) -> tuple[str, str, str]:
        header, partition, merge = source(*args)
        assert partition.count("token <= place") == 1
        seen = partition.replace("token <= place", "token <= place + (width > 1)")
        return header, seen, merge

    patch.setattr(attention, "source", wrong)
