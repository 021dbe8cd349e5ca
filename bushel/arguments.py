"""What `generate` and `chat` are called with, as one request and its parameters each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from bushel.chat.script_request import CHAT_NAMES, checked_fields, unknown_argument
from bushel.core import RequestError, SamplingParams
from bushel.core.params import params_of

# A text, or a mapping: {"prompt"}, {"prompt_token_ids"} or {"messages"}, with what else it says.
Prompt = str | Mapping[str, Any]
Params = SamplingParams | Mapping[str, Any] | None
Messages = Sequence[Mapping[str, Any]]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Self = TypeVar("_Self")


def paired(
    requests: Prompt | Iterable[Prompt], params: Params | Sequence[Params]
) -> list[tuple[Prompt, Params]]:
    """RequestError where the call is wrong as a whole; what is wrong with one of the requests is
    found when that is submitted."""
    listed = _listed(requests)
    if params is None or isinstance(params, str | SamplingParams | Mapping):
        shared = params_of(params)  # which refuses a string
        return [(request, shared) for request in listed]
    if not isinstance(params, Sequence):
        raise RequestError(
            f"params must be one for all requests or a list, not {type(params).__name__}.",
            param="params",
        )
    if len(params) != len(listed):
        raise RequestError(f"{len(listed)} requests but {len(params)} params.", param="params")
    return list(zip(listed, params, strict=True))


def _listed(requests: Any) -> list[Prompt]:
    if isinstance(requests, str | Mapping):
        return [requests]
    if not isinstance(requests, Iterable) or isinstance(requests, bytes):
        raise RequestError(
            f"Give a string, a request or a list of them, not {type(requests).__name__}.",
            param="requests",
        )
    listed = list(requests)
    if listed and all(isinstance(item, int) for item in listed):
        raise RequestError(
            'Numbers are no requests; token ids go as {"prompt_token_ids": [...]}.',
            param="requests",
        )
    return listed


def conversations(
    messages: Messages | Sequence[Messages], fields: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One request for each conversation. RequestError for fields that no request can have."""
    for name in fields:
        if name not in CHAT_NAMES:
            raise unknown_argument(name)
    checked_fields(fields)
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise RequestError(
            'messages must be a list such as [{"role": "user", "content": "Hello"}], or a list of '
            "such lists.",
            param="messages",
        )
    several = all(isinstance(each, Sequence) and not isinstance(each, str) for each in messages)
    return [{"messages": each, **fields} for each in (messages if several else [messages])]


def made_from(
    make: Callable[_P, _T],
) -> Callable[[Callable[[_Self, _T], None]], Callable[Concatenate[_Self, _P], None]]:
    """Let an `__init__` of one argument take what makes it, so that nothing is listed twice."""

    def decorate(init: Callable[[_Self, _T], None]) -> Callable[Concatenate[_Self, _P], None]:
        @wraps(init)
        def made(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
            init(self, make(*args, **kwargs))

        own = next(iter(signature(init).parameters.values()))
        shown = signature(make)
        named = shown.replace(parameters=[own, *shown.parameters.values()])
        made.__signature__ = named  # type: ignore[attr-defined]
        return made

    return decorate
