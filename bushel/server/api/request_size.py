"""How much one request may order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bushel.core import SamplingParams
from bushel.server.api.errors import InvalidField
from bushel.server.errors import ApiError

if TYPE_CHECKING:
    from bushel.server.service.service import Service


def check_size(service: Service, prompts: int, params: SamplingParams, default: int) -> None:
    """Bounds what one request may order; default: tokens of a reply for which nobody says.

    One reply may be as long as it likes, since the engine ends it with the context; many may not.
    """
    limits = service.options.limits
    if prompts > limits.prompts:
        raise InvalidField("prompt", f"must be at most {limits.prompts} prompts", code=None)
    replies = prompts * params.n
    if replies == 1:
        return
    name = "n" if params.n > 1 else "prompt"
    if replies > limits.replies:
        raise ApiError(
            400,
            f"{prompts} prompts with n = {params.n} are {replies} replies, more than the "
            f"{limits.replies} that one request may ask for.",
            param=name,
        )
    each = _reply_tokens(service, params, default)
    if replies * each > limits.tokens:
        why = "" if params.max_tokens is not None else " (the default, as max_tokens is not given)"
        raise ApiError(
            400,
            f"{replies} replies of {each} tokens{why} are more than the {limits.tokens} tokens "
            "that one request may ask for.",
            param=name,
        )


def _reply_tokens(service: Service, params: SamplingParams, default: int) -> int:
    """The most that a reply of theirs may have: as asked for, or as it is when nobody asks."""
    model_info = service.model_info
    model_default = model_info.defaults.max_tokens if model_info else None
    limits = (params.max_tokens, service.options.defaults.max_tokens, model_default)
    tokens = next((limit for limit in limits if limit is not None), default)
    context = model_info.context if model_info else None
    return tokens if context is None else min(tokens, context)
