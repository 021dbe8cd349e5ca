"""What an engine knows of drafts: who makes them, and what passes cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bushel.core import Decoding
from bushel.engine.drafts.batch_drafts import BatchDrafts
from bushel.engine.drafts.cost_profile import MOST_DRAFTS, CostProfile, Drafting
from bushel.engine.drafts.drafter import Drafter
from bushel.models import Model


@dataclass(frozen=True)
class Speculation:
    """makers: of a batch's drafters. Without any it is off, and why_off says why."""

    makers: tuple[Callable[[], Drafter], ...] = ()
    profile: CostProfile | None = None
    why_off: str | None = "it is switched off"
    drafting: Mapping[str, Drafting] = field(default_factory=dict)  # by drafter
    draft: Model | None = None  # the draft model, if there is one
    # Whether a prediction head's drafts may pay for rows that are held to a grammar.
    head_drafts_constrained_rows: bool = True
    # By drafter: seconds that a token of its draft takes more for each token of context.
    drafting_per_context_token: Mapping[str, float] = field(default_factory=dict)
    most: int = MOST_DRAFTS  # in one pass, of all rows together, with what fills rows up: planned

    @property
    def widest(self) -> int:
        """Most tokens that a row says in one step."""
        return 1 + self.profile.deepest if self.makers and self.profile is not None else 1

    def close(self) -> None:
        if self.draft is not None:
            self.draft.close()

    def uses_head(self, decoding: Decoding) -> bool:
        """Whether a prediction head's drafts may pay for such a row."""
        return decoding.constraint is None or self.head_drafts_constrained_rows

    def batch_drafts(self) -> BatchDrafts | None:
        """For a new decode batch."""
        if not self.makers or self.profile is None:
            return None
        each = self.drafting_per_context_token
        return BatchDrafts(self.makers, self.profile, self.drafting, self.most, each)
