"""From a text, token ids or a pair of texts to the prompt of an embedding or a score.

    {"result": "embedding", "prompt": text}                       as the tokenizer ends texts
    {"result": "embedding", "prompt_token_ids": ids}              as they are
    {"result": "embedding", "prompt": query, "text_pair": text}   of a cross-encoder

`truncate`: tokens that are kept of it, at most; without it, what is too long is refused. `field`:
what errors call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bushel.chat.prompt_length import require_room
from bushel.core import ContextLengthError, Prepared, RequestError
from bushel.models import Preparer


def embedding_prompt(host: Preparer, request: Mapping[str, Any]) -> Prepared:
    """RequestError for what cannot be served as it was sent (B48)."""
    field = str(request.get("field") or "input")
    pair = request.get("text_pair")
    if host.task == "score" and pair is None:
        raise RequestError(
            f"{host.name} is a cross-encoder: it scores pairs of texts, at /v1/score and "
            "/v1/rerank, and has no embeddings.",
            code="unsupported_model",
            param="model",
        )
    if pair is not None:
        return _fitting(host, _paired(host, request, field), field)
    most = request.get("truncate")
    if (ids := request.get("prompt_token_ids")) is not None:
        prepared = Prepared(_checked_ids(host, ids, field)[: _limit(host, most)])
    else:
        text = _text(request, "prompt", field)
        if most is None:
            require_room(host, text, field)
        prepared = Prepared(tuple(_encoded(host, text, _limit(host, most))))
    if not prepared.ids:
        raise RequestError(f"{field} is empty: a text needs at least one token.", param=field)
    return _fitting(host, prepared, field)


def writes_nothing(host: Preparer) -> RequestError:
    """What a request for text is told by a model that has none."""
    kind, where = "an embedding model", "/v1/embeddings"
    if host.task == "score":
        kind, where = "a cross-encoder", "/v1/score or /v1/rerank"
    return RequestError(
        f"{host.name} is {kind}: it writes no text. Ask it at {where}.",
        code="unsupported_model",
        param="model",
    )


def _text(request: Mapping[str, Any], key: str, field: str) -> str:
    text = request.get(key)
    if not isinstance(text, str):
        raise RequestError(f"{field} must be a string.", param=field)
    return text


def _checked_ids(host: Preparer, ids: Any, field: str) -> tuple[int, ...]:
    good = isinstance(ids, Sequence) and all(type(token) is int for token in ids)
    if not good or not all(0 <= token < host.vocab for token in ids):
        raise RequestError(f"{field} must have token ids below {host.vocab}.", param=field)
    return tuple(ids)


def _limit(host: Preparer, most: int | None) -> int | None:
    """Tokens that are kept of a text; None: all. -1 says as many as the model takes."""
    return host.context if most == -1 else most


def _encoded(host: Preparer, text: str, limit: int | None) -> list[int]:
    """A text's tokens, or the first of them between those that begin and end every text."""
    encode = host.tokenizer.encode
    ids = encode(text, add_special_tokens=True)
    if limit is None or len(ids) <= limit:
        return ids
    own = encode(text, add_special_tokens=False)
    around = len(ids) - len(own)
    kept = limit - around
    if kept < 1:
        raise RequestError(
            f"truncate_prompt_tokens must be more than {around}, which every text has.",
            param="truncate_prompt_tokens",
        )
    starts = (at for at in range(around + 1) if ids[at : at + len(own)] == own)
    start = next(starts, 0)
    return [*ids[:start], *own[:kept], *ids[start + len(own) :]]


def _paired(host: Preparer, request: Mapping[str, Any], field: str) -> Prepared:
    query, text = _text(request, "prompt", field), _text(request, "text_pair", field)
    for each in (query, text):
        require_room(host, each, field)
    tokens = host.tokenizer.hf(query, text, return_token_type_ids=True)
    types = np.array(tokens["token_type_ids"], np.int32)
    return Prepared(tuple(tokens["input_ids"]), {"token_type_ids": types})


def _fitting(host: Preparer, prepared: Prepared, field: str) -> Prepared:
    """No reply follows, so all of the context is for the text."""
    if host.context is not None and len(prepared.ids) > host.context:
        raise ContextLengthError(len(prepared.ids), host.context, field)
    return prepared
