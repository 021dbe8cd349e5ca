"""Calls of earlier turns, for models whose templates leave it to others to write them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bushel.chat.tool_parsers.registry import FORMATS
from bushel.chat.tool_parsers.tool_format import InlineCalls
from bushel.text.template_abilities import Abilities


def inline_calls_of(controls: Container[str], can: Abilities) -> InlineCalls | None:
    """How the calls of a model with these control tokens are written into its texts.

    None also where the template writes calls by itself.
    """
    if can.calls or not can.tools or not can.results:
        return None
    for format in FORMATS.values():
        if isinstance(format.history, InlineCalls) and format.history.control in controls:
            return format.history
    return None


def with_inline_calls(can: Abilities, inline: InlineCalls) -> Abilities:
    """What the template can take if its calls are written for it."""
    return replace(
        can,
        calls="object",
        text_with_calls="beside",
        parallel=True,
        unanswered=True,
        silence="",
        ids=inline.ids,
    )


def inlined(turns: Sequence[Mapping[str, Any]], inline: InlineCalls) -> list[dict[str, Any]]:
    """Texts in the turns are marked already (`chat.control_tokens`); what is added here is not."""
    written = []
    for turn in turns:
        made = dict(turn)
        if calls := made.pop("tool_calls", None):
            made["content"] = "\n".join(
                text for text in (made["content"], inline.write(calls)) if text
            )
        written.append(made)
    return written
