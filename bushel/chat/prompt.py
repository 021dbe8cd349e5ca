"""From what a caller sends (ids, a string, or messages) to a `Prepared` prompt.

Templates and processors see one form of content: parts of type text, image and video, in
order, with the pictures beside the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bushel.chat.guard import Guard
from bushel.chat.media import load_media
from bushel.core import ContextLengthError, Prepared, RequestError
from bushel.models import Preparer

_FORMS = ("prompt_token_ids", "prompt", "messages")


def prepare(host: Preparer, request: Mapping[str, Any]) -> Prepared:
    """Raises RequestError for anything that cannot be served as it was sent (B48)."""
    if not isinstance(request, Mapping):
        raise RequestError(f"A request is a mapping, not {type(request).__name__}.")
    given = [form for form in _FORMS if request.get(form) is not None]
    if len(given) != 1:
        raise RequestError(f"A request needs exactly one of {', '.join(_FORMS)}.")
    prepared = {"prompt_token_ids": _from_ids, "prompt": _from_text, "messages": _from_messages}[
        given[0]
    ](host, request)
    if not prepared.ids:
        raise RequestError("The prompt is empty: it needs at least one token.", param=given[0])
    if host.context is not None and len(prepared.ids) >= host.context:
        raise ContextLengthError(len(prepared.ids), host.context)
    return prepared


def _from_ids(host: Preparer, request: Mapping[str, Any]) -> Prepared:
    ids = request["prompt_token_ids"]
    good = isinstance(ids, Sequence) and all(type(token) is int for token in ids)
    if not good or not all(0 <= token < host.vocab for token in ids):
        raise RequestError(
            f"prompt_token_ids must be integers below {host.vocab}.", param="prompt_token_ids"
        )
    return Prepared(tuple(ids))


def _from_text(host: Preparer, request: Mapping[str, Any]) -> Prepared:
    text = request["prompt"]
    if not isinstance(text, str):
        raise RequestError("prompt must be a string.", param="prompt")
    return Prepared(tuple(host.tokenizer.encode(text, add_special_tokens=True)))


def _from_messages(host: Preparer, request: Mapping[str, Any]) -> Prepared:
    messages = request["messages"]
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError("messages must be a list with at least one message.", param="messages")
    media: list[Any] = []
    turns = [_message(at, message, media) for at, message in enumerate(messages)]
    options = request.get("chat_template_kwargs") or {}
    if not isinstance(options, Mapping):
        raise RequestError("chat_template_kwargs must be an object.", param="chat_template_kwargs")
    tools = request.get("tools")
    guard = Guard((turns, tools), host.tokenizer.controls)
    text = host.tokenizer.render(guard.apply(turns), tools=guard.apply(tools), **options)
    return host.prepare(text, media, guard.mark)


def _message(at: int, message: Any, media: list[Any]) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise RequestError(f"messages[{at}] must be an object with a role.", param="messages")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return dict(message)
    if not isinstance(content, Sequence) or not content:
        raise RequestError(
            f"messages[{at}].content must be text or a list of parts.", param="messages"
        )
    parts = [_part(f"messages[{at}].content[{n}]", part, media) for n, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return {**message, "content": "\n".join(part["text"] for part in parts)}
    return {**message, "content": parts}


def _part(where: str, part: Any, media: list[Any]) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind in ("image_url", "video_url"):
        media.append(load_media(kind, part.get(kind)))
        return {"type": kind.removesuffix("_url")}
    raise RequestError(f"{where} is not a text, image_url or video_url part.", param="messages")
