"""Which drafters an engine has, decided at load; and what passes cost with them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from bushel.cache.drafts import no_drafts
from bushel.core import ModelError, public_message
from bushel.core.checkpoint import folder_of
from bushel.core.options import DRAFTERS, EngineOptions
from bushel.engine.drafts import profiling
from bushel.engine.drafts.cost_profile import Drafting
from bushel.engine.drafts.draft_length import may_pay
from bushel.engine.drafts.draft_model import DraftModel, require_draft_model
from bushel.engine.drafts.drafter import Drafter
from bushel.engine.drafts.grammar import GrammarDrafter
from bushel.engine.drafts.lookup import Predicted, PromptLookup
from bushel.engine.drafts.mtp import MTPDrafter, head_may_pay
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.row_state import new_row
from bushel.models import Model, load
from bushel.models.device import raise_device_fault
from bushel.models.mtp import holds_head, is_head_alone, load_head

log = logging.getLogger(__name__)


def choose_drafters(
    model: Model,
    options: EngineOptions,
    progress: Callable[[str], None],
    usable: int | None = None,
) -> Speculation:
    """Runs the model for a moment; leaves nothing behind but its head, or a draft model.

    usable: bytes that it may come to; None: any number.
    """
    word = options.speculate
    if word == "off":
        return Speculation()
    why = _why_not(model)
    if why is not None:
        return _without(model, word, why)
    draft = _load_drafter(model, options)
    progress("measuring what drafts cost")
    try:
        return _measured(model, draft, options, usable)
    except Exception as error:  # too little memory, a kernel that cannot be had
        raise_device_fault(error)
        profiling.renew_pages(model)
        log.warning("what drafts of %s cost could not be measured", model.name, exc_info=error)
        why = f"what they cost could not be measured ({public_message(error)})"
    return _without(model, word, why)


def _without(model: Model, word: str, why: str) -> Speculation:
    """No drafts. ModelError if they were asked for."""
    if word != "auto":
        raise ModelError(f"{model.name} cannot be served with speculate={word!r}: {why}.")
    model.mtp = None
    return Speculation(why_off=why)


def _measured(
    model: Model, draft: Model | None, options: EngineOptions, usable: int | None
) -> Speculation:
    """The drafters, and what they cost here."""
    word = options.speculate
    most = 1 if model.single else options.max_batch
    free = None if usable is None else usable - _weights(model, draft)
    profile = profiling.measure(model, most, free=free)
    far = bool(profile.seconds_per_context_token)  # whether long contexts could be measured
    if not may_pay(1, profile):
        model.mtp = None
        return Speculation(why_off="a pass of several tokens takes too long on this machine")
    makers: list[Callable[[], Drafter]] = [partial(GrammarDrafter, profile.deepest)]
    drafting: dict[str, Drafting] = {}
    context: dict[str, float] = {}
    head_drafts_constrained_rows = True
    looks = word in ("auto", "lookup")
    makers.append(partial(PromptLookup if looks else Predicted, profile.deepest))
    if model.mtp is not None:
        makers.append(partial(MTPDrafter, model, profile.deepest))
        drafting[MTPDrafter.name] = seconds = profiling.of_head(model.mtp, most)
        if far:
            each = profiling.of_head_per_context_token(model, seconds[0], free)
            context[MTPDrafter.name] = each
        head_drafts_constrained_rows = head_may_pay(profile, seconds, constrained=True)
    if draft is not None:
        makers.append(partial(DraftModel, model, draft, profile.deepest))
        drafting[DraftModel.name] = seconds = profiling.of_draft_model(draft, most)
        if far:
            each = profiling.of_draft_model_per_context_token(draft, seconds[0], free)
            context[DraftModel.name] = each
    return Speculation(
        tuple(makers),
        profile,
        None,
        drafting,
        draft,
        head_drafts_constrained_rows,
        drafting_per_context_token=context,
    )


def _weights(model: Model, draft: Model | None) -> int:
    """Bytes of all that is loaded."""
    head = 0 if model.mtp is None else model.mtp.nbytes
    return head + model.weights[0] + (0 if draft is None else draft.weights[0])


def _why_not(model: Model) -> str | None:
    if model.encodes:
        return "it is an encoder"
    return no_drafts(new_row(model), model.network)


def _load_drafter(model: Model, options: EngineOptions) -> Model | None:
    """Give the model its prediction head, or load the draft model, as was asked for."""
    word = options.speculate
    if word in DRAFTERS:
        if word == "mtp" or (word == "auto" and holds_head(model.host.path)):
            _load_head(model, wanted=word == "mtp")
        return None
    folder = folder_of(word)
    if is_head_alone(folder):
        model.mtp = load_head(model, folder)
        return None
    draft = load(word, dtype=options.dtype, trust_remote_code=options.trust_remote_code)
    require_draft_model(model, draft)
    return draft


def _load_head(model: Model, *, wanted: bool) -> None:
    """The head of its own checkpoint. ModelError if it is wanted and cannot be had."""
    try:
        model.mtp = load_head(model)
    except ModelError as error:
        if wanted:
            raise
        log.warning("%s drafts without its prediction head: %s", model.name, error)
