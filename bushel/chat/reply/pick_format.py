"""Which forms a model uses, from its chat template (B25, B29)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bushel.chat.reply.thinking_formats import FORMS, HARMONY
from bushel.chat.tool_parsers import FORMATS
from bushel.core import BushelError, ReplyFormat

__all__ = ["FORMATS", "opened", "pick_style", "shape"]

_NONE = "none"
# For models that come without a template, or whose template leaves calls to a program.
_BY_TYPE = {
    "gpt_oss": (HARMONY.name, HARMONY.name),
    "deepseek_v32": ("dsml", "think"),
    "mistral": ("mistral", ""),
    "mistral3": ("mistral", ""),
    "ministral3": ("mistral", ""),
}


def pick_style(
    template: str,
    controls: Mapping[str, int],
    config: Mapping[str, Any] | None = None,
    *,
    shown: str = "",
    tools: str | None = None,
    thinking: str | None = None,
) -> ReplyFormat:
    """The style of a model.

    controls: its special tokens and their ids. shown: a rendering with a call, since a template may
    have several forms in it and write one of them. tools, thinking: names that are used instead of
    what the template shows; "none": the model has no such thing. Without a form that is known,
    the generic format is looked for.
    """
    model_type = str((config or {}).get("model_type", ""))
    hinted = _BY_TYPE.get(model_type, ("generic", ""))
    forms = _named("thinking", thinking, FORMS) if thinking else _form(template) or hinted[1]
    if tools:
        format = _named("tools", tools, {**FORMATS, HARMONY.name: HARMONY})
    else:
        found = _format(shown) or _format(template) or hinted[0]
        format = HARMONY.name if forms == HARMONY.name else found
    if format == HARMONY.name and not thinking:
        forms = HARMONY.name
    markers = sorted((id, text) for text, id in controls.items() if _is_markup(text, format, forms))
    return ReplyFormat(tools=format, thinking=forms, markers=tuple(markers))


def _named(kind: str, name: str, known: Mapping[str, object]) -> str:
    if name == _NONE:
        return ""
    if name not in known:
        raise BushelError(
            f"There is no {kind} format called {name!r}. Use one of "
            f"{', '.join(sorted({*known, _NONE}))}."
        )
    return name


def _form(template: str) -> str:
    for form in FORMS.values():
        if any(sign in template for sign in form.signs or (form.opening,)):
            return form.name
    return ""


def _format(template: str) -> str:
    for format in FORMATS.values():
        if any(sign in template for sign in format.signs):
            return format.name
    return ""


def _is_markup(token: str, tools: str, thinking: str) -> bool:
    """Whether a special token is part of what the forms write."""
    format, form = FORMATS.get(tools), FORMS.get(thinking)
    written = (*(format.starts + format.markup if format else ()), *(form.markers if form else ()))
    return len(token) > 1 and any(token in marker for marker in written)


def opened(reply_format: ReplyFormat, rendered: str) -> bool:
    """Whether a prompt ends with the beginning of a thinking block."""
    form = FORMS.get(reply_format.thinking)
    words = rendered.rstrip()
    return form is not None and words.endswith(tuple(begin.rstrip() for begin in form.begins))


def shape(reply_format: ReplyFormat) -> tuple[str, str]:
    """How thoughts begin and end; empty if the model has none."""
    form = FORMS.get(reply_format.thinking)
    return (form.opening, form.ending) if form else ("", "")
