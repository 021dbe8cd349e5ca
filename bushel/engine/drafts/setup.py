"""Which drafters an engine has, decided at load; and what passes cost there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bushel.cache import BatchState
from bushel.cache.drafts import no_drafts
from bushel.core.options import EngineOptions
from bushel.engine.drafts import cost_profile
from bushel.engine.drafts.depth import may_pay
from bushel.engine.drafts.lookup import PromptLookup
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.row_state import new_row
from bushel.models import Model


def speculation_of(
    model: Model, options: EngineOptions, progress: Callable[[str], None]
) -> Speculation:
    """Runs the model for a moment; leaves nothing behind."""
    if options.speculate == "off":
        return Speculation()
    why = _why_not(model)
    if why is not None:
        return Speculation(why_off=why)
    progress("measuring what drafts cost")
    rows = partial(BatchState, model.make_state, model.pages, drafts=True)
    profile = cost_profile.measure(model, rows, 1 if model.single else options.max_batch)
    if not may_pay(1, profile):
        return Speculation(why_off="a pass of several tokens takes too long on this machine")
    return Speculation((partial(PromptLookup, profile.deepest),), profile, None)


def _why_not(model: Model) -> str | None:
    if model.encodes:
        return "it writes no text"
    return no_drafts(new_row(model), model.network)
