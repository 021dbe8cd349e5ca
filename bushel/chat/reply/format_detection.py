"""Which formats a model writes thoughts and calls in, from its chat template (B25, B29)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bushel.chat.reply.thinking_formats import THINKING_FORMATS
from bushel.chat.tool_parsers.generic import GENERIC
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.core import BushelError, ReplyFormat
from bushel.core.options import ChatOptions

if TYPE_CHECKING:
    from bushel.models import Preparer

_NONE = "none"


def reply_format_of(host: Preparer, chat_options: ChatOptions) -> ReplyFormat:
    """Found once for the same options. Raises BushelError for formats that do not exist."""
    known = host.profile.reply_formats
    if chat_options not in known:
        known[chat_options] = detect_formats(
            host.tokenizer.template,
            host.tokenizer.controls,
            host.config,
            shown=host.profile.written_call,
            tools=chat_options.tools,
            thinking=chat_options.thinking,
        )
    return known[chat_options]


def detect_formats(
    template: str,
    controls: Mapping[str, int],
    config: Mapping[str, Any] | None = None,
    *,
    shown: str = "",
    tools: str | None = None,
    thinking: str | None = None,
) -> ReplyFormat:
    """controls: the model's special tokens and their ids. shown: a rendering with a call, since a
    template may have several formats in it and write one of them. tools, thinking: names that are
    used instead of what the template shows; "none": the model has no such thing. Without a format
    that is known, the generic one is looked for.
    """
    model_type = str((config or {}).get("model_type", ""))
    if thinking:
        thinks = _named("thinking", thinking, THINKING_FORMATS)
    else:
        thinks = _thinking_format(template, model_type)
    if tools:
        calls = _named("tools", tools, FORMATS)
    else:
        calls = thinks if _is_whole(thinks) else _tool_format(shown, template, model_type)
    if _is_whole(calls) and not thinking:
        thinks = calls
    markers = sorted((id, text) for text, id in controls.items() if _is_markup(text, calls, thinks))
    return ReplyFormat(tools=calls, thinking=thinks, markers=tuple(markers))


def _named(kind: str, name: str, known: Mapping[str, object]) -> str:
    if name == _NONE:
        return ""
    if name not in known:
        raise BushelError(
            f"There is no {kind} format called {name!r}. Use one of "
            f"{', '.join(sorted({*known, _NONE}))}."
        )
    return name


def _is_whole(name: str) -> bool:
    """Whether calls and thoughts are of one format, which all of the reply is written in."""
    return name in FORMATS and FORMATS[name].whole_reply


def _thinking_format(template: str, model_type: str) -> str:
    formats = THINKING_FORMATS.values()
    shown = (candidate.name for candidate in formats if candidate.matches(template))
    typical = (candidate.name for candidate in formats if model_type in candidate.model_types)
    return next(shown, "") or next(typical, "")


def _tool_format(shown: str, template: str, model_type: str) -> str:
    formats = FORMATS.values()
    for text in (shown, template):
        for format in formats:
            if format.detect.matches(text):
                return format.name
    typical = (
        candidate.name for candidate in formats if model_type in candidate.detect.model_types
    )
    return next(typical, GENERIC.name)


def _is_markup(token: str, tools: str, thinking: str) -> bool:
    """Whether a special token is part of what the formats write."""
    calls, thoughts = FORMATS.get(tools), THINKING_FORMATS.get(thinking)
    written = (
        *(calls.starts + calls.markup if calls else ()),
        *(thoughts.markers if thoughts else ()),
    )
    return len(token) > 1 and any(token in marker for marker in written)
