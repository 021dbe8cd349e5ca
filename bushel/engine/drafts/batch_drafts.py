"""The drafters of one decode batch: which of them guesses for a row, and how far ahead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from bushel.engine.drafts.cost_profile import CostProfile
from bushel.engine.drafts.depth import depths
from bushel.engine.drafts.drafter import Drafter, KeptRound
from bushel.engine.drafts.head_context import HeadContext
from bushel.engine.drafts.mtp import MTPDrafter
from bushel.engine.prefill import PrefilledRow

Chances = Sequence[float]


class BatchDrafts:
    """Owned by one decode batch; its rows are that batch's rows, in order."""

    def __init__(
        self,
        drafters: Sequence[Drafter],
        profile: CostProfile,
        drafting: Mapping[str, float] | None = None,
    ):
        """drafting: seconds that a drafter takes for each token that it proposes to all rows."""
        self._drafters, self._profile = drafters, profile
        each = [(drafting or {}).get(drafter.name, 0.0) for drafter in drafters]
        self._profiles = [replace(profile, drafting=seconds) for seconds in each]
        self.names = [drafter.name for drafter in drafters]
        self.wants_hidden = any(drafter.wants_hidden for drafter in drafters)

    def join(self, rows: Collection[PrefilledRow]) -> None:
        for drafter in self._drafters:
            drafter.join(rows)

    def leave(self, keep: Sequence[int]) -> None:
        for drafter in self._drafters:
            drafter.leave(keep)

    def may_propose(self, *, ahead: int) -> bool:
        """Whether a round may pay; ahead: tokens of each row that have not been read."""
        return any(self._depths(self._choose(ahead)))

    def propose(self) -> list[list[int]]:
        """By row, what it may say next; nothing at all where a plain step is worth more."""
        chosen = self._choose()
        wanted = self._depths(chosen)
        drafts: list[list[int]] = [[] for _ in chosen]
        for at, drafter in enumerate(self._drafters):
            mine = [
                depth if who == at else 0 for (who, _), depth in zip(chosen, wanted, strict=True)
            ]
            if any(mine):
                for row, draft in enumerate(drafter.propose(mine)):
                    drafts[row] = draft or drafts[row]
        return drafts

    def kept(self, round: KeptRound) -> None:
        """After a round, or a plain step."""
        for drafter in self._drafters:
            drafter.kept(round)

    def put_aside(self, row: int) -> HeadContext | None:
        """What a prediction head knows of a row, which stays so far."""
        heads = (drafter for drafter in self._drafters if isinstance(drafter, MTPDrafter))
        return next((head.put_aside(row) for head in heads), None)

    def _choose(self, ahead: int = 0) -> list[tuple[int, Chances]]:
        """By row, the drafter that is expected to guess the most, and its chances."""
        every = [drafter.chances(ahead) for drafter in self._drafters]
        return [
            max(enumerate(row), key=lambda one: sum(one[1]))  # the first, among equals
            for row in zip(*every, strict=True)
        ]

    def _depths(self, chosen: Sequence[tuple[int, Chances]]) -> list[int]:
        used = {at for at, chances in chosen if chances}
        profiles = (self._profiles[at] for at in used)
        dearest = max(profiles, key=lambda one: one.drafting, default=self._profile)
        return depths([chances for _, chances in chosen], dearest)

    def check_integrity(self) -> None:
        for drafter in self._drafters:
            drafter.check_integrity()
