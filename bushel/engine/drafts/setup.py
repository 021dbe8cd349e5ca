"""Which drafters an engine has, decided at load; and what passes cost there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from bushel.cache import BatchState
from bushel.cache.drafts import no_drafts
from bushel.core import ModelError
from bushel.core.checkpoint import folder_of
from bushel.core.options import EngineOptions
from bushel.engine.drafts import cost_profile
from bushel.engine.drafts.depth import may_pay
from bushel.engine.drafts.draft_model import DraftModel, require_draft_model
from bushel.engine.drafts.drafter import Drafter
from bushel.engine.drafts.lookup import PromptLookup
from bushel.engine.drafts.mtp import MTPDrafter
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.row_state import new_row
from bushel.models import Model, load
from bushel.models.mtp import holds_head, holds_head_alone, load_head

log = logging.getLogger(__name__)


def speculation_of(
    model: Model, options: EngineOptions, room: int, progress: Callable[[str], None]
) -> Speculation:
    """Runs the model for a moment. Leaves nothing behind but its prediction head, if one drafts, or
    a second model. room: bytes beside the model's own weights.
    """
    word = options.speculate
    if word == "off":
        return Speculation()
    why = _why_not(model)
    if why is not None:
        if word != "auto":
            raise ModelError(f"{model.name} cannot be served with speculate={word!r}: {why}.")
        return Speculation(why_off=why)
    draft = None
    if word in ("auto", "mtp"):
        _load_head(model, wanted=word == "mtp")
    elif word != "lookup":
        progress("loading what drafts")
        draft = _load_named(model, options, room)
    progress("measuring what drafts cost")
    rows = partial(BatchState, model.make_state, model.pages, drafts=True)
    profile = cost_profile.measure(model, rows, 1 if model.single else options.max_batch)
    if not may_pay(1, profile):
        model.mtp = None
        if draft is not None:
            draft.close()
        return Speculation(why_off="a pass of several tokens takes too long on this machine")
    makers: list[Callable[[], Drafter]] = []
    drafting: dict[str, float] = {}
    if word in ("auto", "lookup"):
        makers.append(partial(PromptLookup, profile.deepest))
    if model.mtp is not None:
        makers.append(partial(MTPDrafter, model, profile.deepest))
        drafting[MTPDrafter.name] = cost_profile.of_head(model.mtp)
    if draft is not None:
        makers.append(partial(DraftModel, model, draft, profile.deepest))
        own_rows = partial(BatchState, draft.make_state, drafts=True)
        drafting[DraftModel.name] = cost_profile.of_draft_model(draft, own_rows)
    return Speculation(tuple(makers), profile, None, drafting, draft)


def _why_not(model: Model) -> str | None:
    if model.encodes:
        return "it writes no text"
    return no_drafts(new_row(model), model.network)


def _load_named(model: Model, options: EngineOptions, room: int) -> Model | None:
    """A second model; or, of a folder that holds nothing else, a head for this one."""
    folder = folder_of(options.speculate)
    if holds_head_alone(folder):
        model.mtp = load_head(model, folder)
        return None
    draft = load(
        options.speculate,
        dtype=options.dtype,
        trust_remote_code=options.trust_remote_code,
        usable=room,
    )
    try:
        require_draft_model(model, draft)
    except ModelError:
        draft.close()
        raise
    return draft


def _load_head(model: Model, *, wanted: bool) -> None:
    """The head of its own checkpoint. ModelError if it is wanted and cannot be had."""
    if not wanted and not holds_head(model.host.path):
        return
    try:
        model.mtp = load_head(model)
    except ModelError as error:
        if wanted:
            raise
        log.warning("%s drafts without its prediction head: %s", model.name, error)
