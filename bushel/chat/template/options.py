"""What a request may say to a model's chat template, and nothing to what runs the template (B15).

A variable that the template reads is given to it. One that it does not read is a hint, written for
other models: it is left out, and the log says so once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from bushel.core import RequestError
from bushel.core.conversation import Thinking

if TYPE_CHECKING:
    from bushel.models import Preparer

log = logging.getLogger(__name__)

VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]{0,63}")
# What `apply_chat_template` itself takes.
RESERVED = frozenset(
    {
        "chat_template",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
# Options of the rendering itself: every template may be asked for them.
_SWITCHES = ("add_generation_prompt", "continue_final_message")
_PARAM = "chat_template_kwargs"
_MOST_NAMES = 256  # that clients make up, and that the log tells
_told: set[str] = set()
NOTHING: Mapping[str, Any] = {}


def template_options(
    host: Preparer, request: Mapping[str, Any], defaults: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """defaults: variables that are set where the request does not set them."""
    if request.get("chat_template") is not None:
        raise RequestError(
            "A chat_template of the request's own is not accepted.", param="chat_template"
        )
    given = request.get(_PARAM) or {}
    if not isinstance(given, Mapping):
        raise RequestError(f"{_PARAM} must be an object.", param=_PARAM)
    asked = host.profile.abilities.thinking_options(_asked(request.get("thinking")))
    options = {**_variables(host, defaults), **asked, **_variables(host, given)}
    if options.get("continue_final_message"):
        options.setdefault("add_generation_prompt", False)
    return options


def _variables(host: Preparer, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of those that are given, what the template gets."""
    can, options = host.profile.abilities, dict[str, Any]()
    for name, value in given.items():
        if name in _SWITCHES:
            if not isinstance(value, bool):
                raise _refused(name, "must be true or false")
        elif name not in host.tokenizer.options:
            options |= can.thinking_options(_meant(name, value))
            continue
        options[name] = value
    return options


def _asked(thinking: Any) -> Thinking:
    if thinking is not None and not isinstance(thinking, Mapping):
        raise RequestError("thinking must be an object.", param="thinking")
    return cast(Thinking, thinking or {})


def _meant(name: Any, value: Any) -> Thinking:
    """Of a variable that the template does not read: what it says of thinking, in other words."""
    if name in ("enable_thinking", "thinking"):
        return {"enabled": bool(value)}
    if name == "reasoning_effort" and isinstance(value, str):
        return {"effort": value}
    if not isinstance(name, str) or name in RESERVED or not VARIABLE.fullmatch(name):
        raise _refused(name, "is not an option of this model's chat template")
    if name not in _told and len(_told) < _MOST_NAMES:
        _told.add(name)
        log.warning("Ignored %s: the model's chat template does not read %r.", _PARAM, name)
    return {}


def _refused(name: Any, rule: str) -> RequestError:
    return RequestError(f"{_PARAM}: {name!r:.60} {rule}.", param=_PARAM)
