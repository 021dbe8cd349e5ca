"""A sequence that can decode: its state, or a snapshot shared with its siblings."""

from __future__ import annotations

from dataclasses import dataclass

from bushel.cache import Snapshot
from bushel.engine.drafts.head_context import HeadContext
from bushel.engine.row_state import new_row
from bushel.engine.sequence import Sequence
from bushel.models import Model, Prompt, State


@dataclass(eq=False)
class PrefilledRow:
    sequence: Sequence
    prompt: Prompt
    position: int
    state: State | None
    snapshot: Snapshot | None = None
    context: HeadContext | None = None  # what a prediction head knows of it; shared

    def take_state(self, model: Model) -> State:
        if self.state is not None:
            return self.state
        assert self.snapshot is not None
        return self.snapshot.restore(new_row(model))

    @property
    def token(self) -> int:
        """The token that has not been run yet."""
        tokens = self.sequence.tokens
        return tokens[-1] if tokens else self.prompt.ids[-1]
