"""From a request's fields to `SamplingParams`, with the bounds that take more than one field."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import BaseModel
from starlette.datastructures import Headers

from bushel.core import SamplingParams
from bushel.server.access import sent_key
from bushel.server.errors import ApiError
from bushel.server.openai.sampling import SamplingFields
from bushel.server.openai.schema import ChatRequest, CompletionRequest

if TYPE_CHECKING:
    from bushel.server.service.service import Service

logger = logging.getLogger(__name__)

# Names a client makes up must not fill the memory, nor the log.
_MOST_NAMES = 256
_LONGEST_NAME = 64
_logged: set[str] = set()


def note_ignored(name: str, why: str) -> None:
    """One line per name and process."""
    name = name[:_LONGEST_NAME]
    if name not in _logged and len(_logged) < _MOST_NAMES:
        _logged.add(name)
        logger.warning("Ignored the request field %r: %s.", name, why)


def note_unknown(body: BaseModel) -> None:
    for name in body.model_extra or ():
        note_ignored(name, "it is not known")


def chat_params(body: ChatRequest) -> SamplingParams:
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs to be true.", param="top_logprobs")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return body.params(body.limit, logprobs, body.choices)


def completion_params(body: CompletionRequest) -> SamplingParams:
    if body.best_of not in (None, body.choices):
        raise ApiError(400, "best_of is not supported, unless it equals n.", param="best_of")
    # The engine makes at least one token; the reply leaves it out where none was wanted.
    limit = max(body.max_tokens, 1) if body.max_tokens is not None else None
    params = body.params(limit, body.logprobs, body.choices)
    if body.echo and body.logprobs is not None:
        return replace(params, prompt_logprobs=body.logprobs)
    return params


def salt(service: Service, headers: Headers, body: SamplingFields) -> str:
    """Whose requests may share what was computed; a key is covered without being told."""
    said = body.cache_salt or ""
    if not service.options.cache_per_key:
        return said
    return hashlib.sha256(sent_key(headers) + b"\0" + said.encode()).hexdigest()


def check_ids(service: Service, prompts: Sequence[str | list[int]]) -> None:
    """Said here, an error names the field that the client knows."""
    vocab = service.model_info.vocab if service.model_info else None
    if vocab and any(max(it) >= vocab for it in prompts if not isinstance(it, str)):
        raise ApiError(400, f"prompt must have token ids below {vocab}.", param="prompt")


def check_amount(service: Service, prompts: int, params: SamplingParams, default: int) -> None:
    """Bounds what one request may order; default: tokens of a reply for which nobody says.

    One reply may be as long as it likes, since the engine ends it with the context; many may not.
    """
    limits = service.options.limits
    if prompts > limits.prompts:
        raise ApiError(400, f"prompt must be at most {limits.prompts} prompts.", param="prompt")
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
    model_info, stated = service.model_info, service.options.defaults.max_tokens
    model = model_info.defaults.max_tokens if model_info else None
    tokens = next((it for it in (params.max_tokens, stated, model) if it is not None), default)
    return (
        tokens
        if model_info is None or model_info.context is None
        else min(tokens, model_info.context)
    )
