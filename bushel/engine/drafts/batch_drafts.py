"""The drafters of one decode batch: which of them guesses for a row, and how far ahead.

Replies do not need them. One that fails is asked no more until the batch is empty, and rows go on
without its guesses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import methodcaller
from typing import TypeVar

from bushel.engine.drafts.cost_profile import MOST_DRAFTS, CostProfile, Drafting
from bushel.engine.drafts.draft_length import draft_lengths, may_pay
from bushel.engine.drafts.drafter import Drafter, Drafts, KeptRound, read_drafts
from bushel.engine.drafts.head_context import HeadContext
from bushel.engine.drafts.mtp import MTPDrafter
from bushel.engine.prefilled_row import PrefilledRow
from bushel.models.device import raise_device_fault

# Tokens of a row: what is worth while is worked out anew when the context has grown by so many, and
# not in every step (23 us for one row, 80 for 32).
_CONTEXT_STEP = 256

log = logging.getLogger(__name__)

Chances = Sequence[float]
Answer = TypeVar("Answer")


class BatchDrafts:
    """Owned by one decode batch; its rows are that batch's rows, in order."""

    def __init__(
        self,
        makers: Sequence[Callable[[], Drafter]],
        profile: CostProfile,
        drafting: Mapping[str, Drafting] | None = None,
        most: int = MOST_DRAFTS,
        drafting_per_context_token: Mapping[str, float] | None = None,
    ):
        """drafting: what a drafter takes for each token that it proposes to all rows, and what that
        takes more for each token that they attend to.

        most: drafts of all rows together, with what fills rows up that have fewer than others.
        """
        self._makers, self._profile, self._drafting = makers, profile, drafting or {}
        self._drafting_per_context_token = drafting_per_context_token or {}
        self._most = most
        self._pays = [may_pay(1 + fewer, profile, most) for fewer in range(len(profile.seconds))]
        self._rows = 0
        self._asked: tuple[list[tuple[int, Chances]], int] = ([], 0)
        self._answer: list[int] = []
        self._begin()

    def _begin(self) -> None:
        self._drafters = [make() for make in self._makers]
        self.why_fewer = ""  # what the last one that failed did

    @property
    def names(self) -> list[str]:
        return [drafter.name for drafter in self._drafters]

    @property
    def wants_hidden(self) -> bool:
        return any(drafter.wants_hidden for drafter in self._drafters)

    def join(self, rows: Collection[PrefilledRow]) -> None:
        self._rows += len(rows)
        self._ask(lambda drafter: drafter.join(rows))

    def leave(self, keep: Sequence[int]) -> None:
        self._rows = len(keep)
        self._ask(lambda drafter: drafter.leave(keep))
        if not keep and self.why_fewer:
            self._begin()

    def may_propose(self, context_tokens: int, *, ahead: int) -> bool:
        """Whether a round may pay. context_tokens: that it attends to, of all rows together; ahead:
        tokens of each row that have not been read.
        """
        pays = self._rows > 0 and self._pays[self._rows - 1]
        return pays and any(self._draft_lengths(self._choose(ahead), context_tokens))

    def propose(self, context_tokens: int) -> Drafts:
        """By row, what it may say next; nothing at all where a plain step is worth more."""
        chosen = self._choose()
        wanted = self._draft_lengths(chosen, context_tokens)
        proposed: list[Drafts] = []
        for at, drafter in [*enumerate(self._drafters)]:
            mine = [
                length if who == at else 0 for (who, _), length in zip(chosen, wanted, strict=True)
            ]
            if any(mine):
                proposed += self._ask(methodcaller("propose", mine), drafter)
        if len(proposed) == 1:
            return proposed[0]
        drafts: list[list[int]] = [[] for _ in chosen]
        for some in proposed:
            drafts = [
                draft or other for draft, other in zip(read_drafts(some), drafts, strict=True)
            ]
        return drafts

    def kept(self, round: KeptRound) -> None:
        """After a round, or a plain step."""
        self._ask(lambda drafter: drafter.kept(round))

    def put_aside(self, row: int) -> HeadContext | None:
        """What a prediction head knows of a row, which stays so far."""

        def context(drafter: Drafter) -> HeadContext | None:
            return drafter.put_aside(row) if isinstance(drafter, MTPDrafter) else None

        return next((head for head in self._ask(context) if head is not None), None)

    def _ask(self, question: Callable[[Drafter], Answer], *only: Drafter) -> list[Answer]:
        """What every drafter says, or only some; one that fails says nothing."""
        answers = []
        for drafter in only or [*self._drafters]:
            try:
                answers.append(question(drafter))
            except Exception as error:
                raise_device_fault(error)
                self.why_fewer = f"{drafter.name} failed: {error}"
                log.warning("%s; replies go on without its drafts", self.why_fewer)
                self._drafters.remove(drafter)
        return answers

    def _choose(self, ahead: int = 0) -> list[tuple[int, Chances]]:
        """By row, the drafter that is expected to guess the most, and its chances."""
        most = self._most // max(1, self._rows)
        every = self._ask(lambda drafter: drafter.chances(ahead, most))
        return [
            max(enumerate(row), key=lambda one: sum(one[1]))  # the first, among equals
            for row in zip(*every, strict=True)
        ]

    def _draft_lengths(self, chosen: list[tuple[int, Chances]], context_tokens: int) -> list[int]:
        step = _CONTEXT_STEP * max(1, len(chosen))
        asked = chosen, context_tokens // step * step
        if asked != self._asked:
            self._asked, self._answer = asked, self._worth(*asked)
        return self._answer

    def _worth(self, chosen: Sequence[tuple[int, Chances]], context_tokens: int) -> list[int]:
        used = {self._drafters[at].name for at, chances in chosen if chances}
        context = self._drafting_per_context_token
        costs = (
            self._drafting[name][len(chosen) - 1] + context_tokens * context.get(name, 0.0)
            for name in used
            if name in self._drafting
        )
        dearest = max(costs, default=0.0)
        profile = replace(self._profile, drafting=dearest, context_tokens=context_tokens)
        return draft_lengths([chances for _, chances in chosen], profile, self._most)

    def check_integrity(self) -> None:
        for drafter in self._drafters:
            drafter.check_integrity()
