"""Batches whose rows go on by a draft, and then back to what is kept of it.

Keys and values go back by their lengths (`ragged`), pages as well, and recurrent states by the
state before the draft and a tape of its inputs (`bushel.models.recurrent_rollback`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from bushel.cache.composite import Composite
from bushel.cache.kinds import kind_of
from bushel.cache.kv_cache import KV
from bushel.cache.layer_kind import Layer, LayerKind
from bushel.cache.paged.attention import MOST_QUERIES
from bushel.cache.paged.paged_kv import PagedKV, table_of
from bushel.cache.ragged.kinds import RaggedKV, RaggedWindow
from bushel.cache.ragged.ragged_caches import SPARE
from bushel.cache.ragged.row_lengths import RowLengths
from bushel.cache.recurrent import Recurrent
from bushel.cache.unkept import Unkept
from bushel.cache.window import Window
from bushel.core import IntegrityError
from bushel.core.footprint import LayerFootprint
from bushel.models import recurrent_rollback
from bushel.models.known_families import drafts_exactly

_RAGGED: dict[type[LayerKind], Any] = {KV: RaggedKV(), Window: RaggedWindow()}
_AS_THEY_ARE = (PagedKV, Recurrent, Unkept)


def draftable(singles: Sequence[Layer], lengths: RowLengths) -> Layer:
    """One single or more into one batch, in order. The singles are not used again."""
    kind = kind_of(singles[0])
    if isinstance(kind, Composite):
        columns = zip(*(single.caches for single in singles), strict=True)
        return type(singles[0])(*(draftable(column, lengths) for column in columns))
    if ragged := _RAGGED.get(type(kind)):
        return ragged.begin(singles, lengths)
    return singles[0] if len(singles) == 1 else kind.merge(singles)


def recurrent_parts(layers: Sequence[Layer]) -> Iterator[Layer]:
    for layer in layers:
        for kind, part in kind_of(layer).parts(layer):
            if isinstance(kind, Recurrent):
                yield part


def no_drafts(state: Sequence[Layer], network: Any) -> str | None:
    """Why rows of this state, fresh from a network's model, cannot take drafts, or None."""
    for layer in state:
        for kind, part in kind_of(layer).parts(layer):
            if type(kind) not in (*_RAGGED, *_AS_THEY_ARE) or getattr(part, "keep", False):
                return f"rejected tokens cannot be rolled back in {type(part).__name__}"
            if isinstance(kind, Recurrent) and not recurrent_rollback.can_record(network):
                return "rejected tokens cannot be rolled back in its recurrent layers"
    if not drafts_exactly(network):
        return "speculative decoding is not verified for this model family"
    return None


def sizes(state: Sequence[Layer], position: int, columns: int) -> list[LayerFootprint]:
    """What rows cost that take drafts of so many columns, told from singles that have run
    `position` tokens.
    """
    parts = [part for layer in state for part in kind_of(layer).parts(layer)]
    recurrent = sum(isinstance(kind, Recurrent) for kind, _ in parts)
    return [
        _with_draft(size, kind, part, columns, recurrent)
        for kind, part in parts
        for size in kind.size(part, position)
    ]


def _with_draft(
    size: LayerFootprint, kind: LayerKind, part: Layer, columns: int, recurrent: int
) -> LayerFootprint:
    """recurrent: how many layers are, of which a draft may keep the states."""
    if isinstance(kind, Window) and size.window is not None:
        return replace(size, window=size.window + SPARE)
    if not isinstance(kind, Recurrent):
        return size
    windows = [array for array in part.cache if array is not None and array.ndim == 3]
    convolved = sum(window.nbytes for window in windows)
    # What a layer is given: all that a convolution sees, and what it makes of it.
    given = convolved + sum(2 * columns * window.nbytes // window.shape[1] for window in windows)
    state = size.fixed - convolved
    kept = (columns - 1) * state
    before = size.fixed + (kept if recurrent * kept <= recurrent_rollback.KEPT_STATES else 0)
    return replace(size, fixed=size.fixed + before + given)


def widest(state: Sequence[Layer]) -> int:
    """Columns that a draft of such rows can have: its tokens, and the one before them."""
    return MOST_QUERIES if table_of(state) is not None else SPARE + 1


class Draft:
    """Begun before its forward pass, ended when what is kept of it is known."""

    def __init__(self, layers: Sequence[Layer], positions: Sequence[int], counts: Sequence[int]):
        self._counts = list(counts)
        self._width = max(counts)
        if self._width > 1 and not all(positions):
            raise IntegrityError("a row that has run no token cannot take a draft")
        if self._width > (most := widest(layers)):
            raise IntegrityError(f"a draft of {self._width} columns, and not {most}")
        # A single column is never rejected, unless it only fills up a row.
        records = self._width > 1 or not all(counts)
        self._recurrent = list(recurrent_parts(layers)) if records else []
        self._recording = recurrent_rollback.Recording([part.cache for part in self._recurrent])

    def ran(self) -> None:
        """Its forward pass has been built."""
        self._recording.end()

    def end(self, kept: Sequence[int]) -> None:
        self.ran()
        pairs = zip(kept, self._counts, strict=True)
        if not all(min(1, count) <= keeps <= count for keeps, count in pairs):
            raise IntegrityError(f"{list(kept)} kept of drafts of {self._counts}")
        of_rows = recurrent_rollback.KeptTokens(kept)
        for part, tape in zip(self._recurrent, self._recording.tapes, strict=True):
            part.cache = tape.after(part.cache, self._width, of_rows)
