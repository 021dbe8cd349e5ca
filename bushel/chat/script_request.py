"""A script's request, checked by name, in the one form that prompts and grammars are made from.

It says what a body of `/v1/chat/completions` says, by the same names; but what nobody knows is an
error here, since a script can be put right.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from bushel.chat.prompt import FORMS, NEEDS_ONE, form_of
from bushel.chat.response_format import checked_format
from bushel.chat.tool_fields import checked_choice, checked_tools, chosen
from bushel.core import FieldError, RequestError
from bushel.core.conversation import Shape, Thinking
from bushel.core.params import SAMPLING_NAMES
from bushel.core.spelling import did_you_mean

_MUST_SPEAK = ("system", "developer", "user")


class AnswerFields(TypedDict, total=False):
    """What a request with any kind of prompt may say; `LLM.chat` says what each one means."""

    response_format: Mapping[str, Any] | None
    shape: Shape | None
    cache_salt: str | None
    priority: int | None


class ChatFields(AnswerFields, total=False):
    """What a conversation may say besides its messages. None: as if it were not there."""

    tools: Sequence[Any] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    thinking: Thinking | None
    chat_template_kwargs: Mapping[str, Any] | None
    prediction: str | None


CHAT_NAMES = frozenset(ChatFields.__annotations__)
_PROMPT_NAMES = frozenset(AnswerFields.__annotations__)
_NAMES = (*FORMS, *sorted(CHAT_NAMES))
_THINKING = frozenset(Thinking.__annotations__)


def checked_request(request: Any) -> dict[str, Any]:
    """Without what is None. RequestError names the key that is wrong."""
    if not isinstance(request, Mapping):
        raise RequestError(
            f"A request is a string or a mapping, not {type(request).__name__}.", param="request"
        )
    given = {key: value for key, value in request.items() if value is not None}
    for key in given:
        if key not in _NAMES:
            what = _unknown(key, "a key of a request", _NAMES)
            near = what.endswith("?") or not given.keys().isdisjoint(FORMS)
            raise RequestError(what if near else f"{what} {NEEDS_ONE}", param=str(key))
    form = form_of(given)
    if form == "messages":
        _require_content(given["messages"])
    elif more := given.keys() - _PROMPT_NAMES - {form}:
        name = min(more)
        raise RequestError(f"{name} goes with messages, not with {form}.", param=name)
    return {form: given[form], **checked_fields(given)}


def checked_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of a request, or of a call for all of its conversations."""
    fields = {key: value for key, value in given.items() if key in CHAT_NAMES and value is not None}
    shape = fields.pop("response_format", None)
    if shape is not None:
        if "shape" in fields:
            raise RequestError("A reply can be held to response_format or to shape, not to both.")
        fields["shape"] = _below("response_format", checked_format, shape)
    fields |= _offer(fields)
    _require_type(fields, "thinking", Mapping, "an object")
    _require_type(fields, "shape", Mapping, "an object")
    _require_type(fields, "chat_template_kwargs", Mapping, "an object")
    _require_type(fields, "prediction", str, "a string")
    for key in (thinking := fields.get("thinking", {})):
        if key not in _THINKING:
            raise RequestError(_unknown(key, "a key of thinking", _THINKING), param="thinking")
    _require_type(thinking, "enabled", bool, "true or false")
    return fields


def unknown_argument(name: str) -> RequestError:
    return RequestError(_unknown(name, "an argument of chat", CHAT_NAMES), param=name)


def _unknown(name: Any, what: str, known: Any) -> str:
    if name in SAMPLING_NAMES:
        return f"{name!r} is not {what}: it is a sampling parameter, and goes into params."
    return f"{str(name)[:60]!r} is not {what}{did_you_mean(name, known)}"


def _require_type(fields: Mapping[str, Any], name: str, kind: type, words: str) -> None:
    if not isinstance(fields.get(name), kind | None):
        raise FieldError(name, f"must be {words}, not {type(fields[name]).__name__}")


def _below(field: str, check: Any, value: Any) -> Any:
    try:
        return check(value)
    except FieldError as error:
        raise FieldError(field + error.where, error.rule) from None


def _require_content(messages: Any) -> None:
    """A template would write an empty turn for a message whose content goes by another name."""
    if not isinstance(messages, Sequence):
        return  # which is told where messages are read
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.get("role") not in _MUST_SPEAK:
            continue
        if message.get("content") is None:
            near = difflib.get_close_matches("content", map(str, message), n=1)
            hint = f"; is it what {near[0]!r} says?" if near else "."
            raise RequestError(f"messages[{at}] has no content{hint}", param="messages")


# -- tools -------------------------------------------------------------------------------------


def _offer(fields: dict[str, Any]) -> dict[str, Any]:
    """What the model may call, and what it has to."""
    choice = fields.pop("tool_choice", None)
    several = fields.pop("parallel_tool_calls", None)
    if several is not None and not isinstance(several, bool):
        raise FieldError("parallel_tool_calls", "must be true or false")
    if choice is not None:
        choice = _below("tool_choice", checked_choice, choice)
    tools, choice = chosen(choice, checked_tools(fields.pop("tools", None)))
    if not tools:
        return {}
    offer: dict[str, Any] = {"tools": tools}
    if choice is not None:
        offer["tool_choice"] = choice
    return offer if several is None else {**offer, "parallel": several}
