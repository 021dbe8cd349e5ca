"""What guesses the tokens that the rows of a decode batch say next.

    chances    how likely each row's next drafts are to be accepted, as its own reply has shown
    lengths    how many of them each row takes (`draft_length.draft_lengths`)
    propose    the drafts; one pass of the model then says which of them are accepted
    kept       what that pass, or a plain step, added to every row

All that a row has said is in `sequence.tokens` whenever one of them is called, but for the tokens
of plain steps that are still on the device.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

import mlx.core as mx

from bushel.engine.drafts.cost_profile import MOST_DRAFTS
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sequence import Sequence as Reply


class KeptRound(NamedTuple):
    """What a pass of several tokens a row left behind."""

    kept: Sequence[int]  # inputs of each row that stay: its newest token, and accepted drafts
    hidden: mx.array | None = None  # [B, W, D] of all inputs, where the drafter reads them


class DeviceDrafts(NamedTuple):
    """Drafts that nobody has read: a pass over them is built and started while they are made."""

    tokens: mx.array  # [B, k]
    counts: list[int]  # by row, how many of them are its draft

    def read(self) -> list[list[int]]:
        """Waits for the device."""
        rows: Any = self.tokens.tolist()
        return [row[:count] for row, count in zip(rows, self.counts, strict=True)]


Drafts = list[list[int]] | DeviceDrafts  # by row, which may have none


def counts_of(drafts: Drafts) -> list[int]:
    return drafts.counts if isinstance(drafts, DeviceDrafts) else [*map(len, drafts)]


def read_drafts(drafts: Drafts) -> list[list[int]]:
    return drafts.read() if isinstance(drafts, DeviceDrafts) else drafts


class Drafter(Protocol):
    """Owned by one decode batch; its rows are that batch's rows, in order."""

    name: str

    @property
    def wants_hidden(self) -> bool:
        """States of the model, in `kept`."""

    def join(self, rows: Collection[PrefilledRow]) -> None: ...

    def leave(self, keep: Sequence[int]) -> None: ...

    def chances(self, ahead: int = 0, most: int = MOST_DRAFTS) -> list[Sequence[float]]:
        """By row: that its first draft is accepted, that its first two are, ...; none: no drafts.

        A function of the row's own tokens alone, so that the same request always drafts alike.
        ahead: tokens of each row that are still on the device, and will have been read by then.
        most: drafts of a row that a pass has room for; nobody asks about others.
        """

    def propose(self, lengths: Sequence[int]) -> Drafts:
        """At most lengths[i] tokens for row i, and none for 0; what `chances` was asked for."""

    def kept(self, round: KeptRound) -> None:
        """After a round or a plain step; what was said is in the sequences."""

    def check_integrity(self) -> None: ...


def before_end(tokens: list[int], sequence: Reply) -> list[int]:
    """Up to what would end the reply: that is chosen anyway, and nothing follows it."""
    ends = sequence.decoding.end_ids
    return tokens[: next((at for at, token in enumerate(tokens) if token in ends), len(tokens))]
