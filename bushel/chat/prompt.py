"""From what a caller sends (ids, a string, or messages) to a `Prepared` prompt.

Templates and processors see one form of content: parts of type text, image and video, in
order, with the pictures beside the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bushel.chat.borders import Talk, find_borders
from bushel.chat.guard import Guard
from bushel.chat.headers import without_headers
from bushel.chat.media import OWN, Intake
from bushel.core import ContextLengthError, Prepared, RequestError
from bushel.core.params import MAX_SALT
from bushel.core.wire import MediaRules
from bushel.models import Preparer

_FORMS = ("prompt_token_ids", "prompt", "messages")
# Options of the rendering itself: every template may be asked for them.
_SWITCHES = ("add_generation_prompt", "continue_final_message")
# Turned off, they ask nothing of a template that has nothing to turn off.
_THINKING = ("enable_thinking", "thinking")


def prepare(
    host: Preparer,
    request: Mapping[str, Any],
    rules: MediaRules = OWN,
    *,
    keep_headers: bool = False,
) -> Prepared:
    """Raises RequestError for anything that cannot be served as it was sent (B48).

    `rules` say where its media may come from: scripts open their own files, a server none
    unless it was told to. A URL in a text is text. keep_headers: leave in the system prompt what
    clients put before it (`chat.headers`).
    """
    if not isinstance(request, Mapping):
        raise RequestError(f"A request is a mapping, not {type(request).__name__}.")
    given = [form for form in _FORMS if request.get(form) is not None]
    if len(given) != 1:
        raise RequestError(f"A request needs exactly one of {', '.join(_FORMS)}.")
    if given[0] == "messages":
        prepared = _from_messages(host, request, rules, keep_headers)
    else:
        prepared = (_from_ids if given[0] == "prompt_token_ids" else _from_text)(host, request)
    if not prepared.ids:
        raise RequestError("The prompt is empty: it needs at least one token.", param=given[0])
    if host.context is not None and len(prepared.ids) >= host.context:
        param = "messages" if given[0] == "messages" else "prompt"
        raise ContextLengthError(len(prepared.ids), host.context, param)
    return prepared


def salt_of(request: Mapping[str, Any]) -> str:
    """What must be the same for two requests to share anything; they say it by `cache_salt`."""
    salt = request.get("cache_salt") or ""
    if not isinstance(salt, str) or len(salt) > MAX_SALT:
        raise RequestError(
            f"cache_salt must be a string of at most {MAX_SALT} characters.", param="cache_salt"
        )
    return salt


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
    _require_room(host, text, "prompt")
    return Prepared(tuple(host.tokenizer.encode(text, add_special_tokens=True)))


def _from_messages(
    host: Preparer, request: Mapping[str, Any], rules: MediaRules, keep_headers: bool
) -> Prepared:
    messages = request["messages"]
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError("messages must be a list with at least one message.", param="messages")
    options = _options(host, request)
    media = Intake(rules)
    turns = [_message(at, message, media) for at, message in enumerate(messages)]
    if not keep_headers:
        turns = without_headers(turns)
    tools = request.get("tools")
    guard = Guard((turns, tools, options), host.tokenizer.controls)
    talk = Talk(host.tokenizer, *map(guard.apply, (turns, tools, options)))
    text = talk.render()
    _require_room(host, text, "messages")
    prepared = host.prepare(text, media.items, guard.mark)
    return replace(prepared, borders=find_borders(host, talk, text, prepared, guard.mark))


def _require_room(host: Preparer, text: str, param: str) -> None:
    """Refuse at once what could not fit even in the longest tokens: counting takes minutes."""
    least = len(text) // host.tokenizer.longest
    if host.context is not None and least >= host.context:
        raise ContextLengthError(least, host.context, param, at_least=True)


def _options(host: Preparer, request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request may say to the template, and nothing to what runs the template (B15)."""
    if request.get("chat_template") is not None:
        raise RequestError(
            "A chat_template of the request's own is not accepted.", param="chat_template"
        )
    given = request.get("chat_template_kwargs") or {}
    if not isinstance(given, Mapping):
        raise RequestError("chat_template_kwargs must be an object.", param="chat_template_kwargs")
    options = {}
    for name, value in given.items():
        named = f"chat_template_kwargs: {name!r:.60}"
        if name in _SWITCHES:
            if not isinstance(value, bool):
                raise RequestError(f"{named} must be true or false.", param="chat_template_kwargs")
        elif name not in host.tokenizer.options:
            if name in _THINKING and not value:
                continue
            raise RequestError(
                f"{named} is not an option of this model's chat template.",
                param="chat_template_kwargs",
            )
        options[name] = value
    if options.get("continue_final_message"):
        options.setdefault("add_generation_prompt", False)
    return options


def _message(at: int, message: Any, media: Intake) -> dict[str, Any]:
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


def _part(where: str, part: Any, media: Intake) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind in ("image_url", "video_url"):
        media.take(where, kind, part.get(kind))
        return {"type": kind.removesuffix("_url")}
    raise RequestError(f"{where} is not a text, image_url or video_url part.", param="messages")
