"""What a reply is watched for, by the style of its model and the tools that were offered."""

from __future__ import annotations

from functools import lru_cache

from bushel.chat.reply.format import Format
from bushel.chat.reply.formats import FORMATS, GENERIC
from bushel.chat.reply.thinking import FORMS
from bushel.chat.reply.watch import Watch
from bushel.core import Style


def starts(format: Format) -> tuple[str, ...]:
    """Where calls may begin behind other text."""
    return format.anywhere if format.leading else format.starts


class Sights:
    """Markers for each place: `first`, where nothing was said; `later`, behind text; `inside`
    thoughts. Without offered tools no calls are looked for.

    Special tokens of the style have no meaning in some of these places; they are then `dropped`,
    as all other special tokens are.
    """

    def __init__(self, style: Style, tools: bool):
        self.formats = _formats(style) if tools else ()
        form = FORMS.get(style.thinking)
        self.begins = form.begins if form else ()
        self.ends = form.ends if form else ()
        own = starts(self.formats[0]) if self.formats else ()
        calls = [start for format in self.formats for start in starts(format)]
        special = {text for _, text in style.markers}
        # Such a start cannot be something that is only talked about.
        self.certain = tuple(start for start in own if start in special)
        self.dropped = tuple(special - {*calls, *self.begins, *self.ends})
        thoughts = (*self.begins, *self.ends, *(form.plain if form else ()), *self.dropped)
        leading = [start for format in self.formats for start in format.starts]
        self.first = Watch((*leading, *thoughts))
        self.later = Watch((*calls, *(thoughts if form and form.anywhere else self.dropped)))
        self.inside = Watch((*own, *self.ends, *self.dropped))

    def format(self, start: str) -> Format | None:
        return next((format for format in self.formats if start in format.starts), None)


@lru_cache(maxsize=32)
def sights(style: Style, tools: bool) -> Sights:
    """tools: whether any were offered."""
    return Sights(style, tools)


def _formats(style: Style) -> tuple[Format, ...]:
    """The model's, and what is tried beside it (B25)."""
    chosen = FORMATS.get(style.tools)
    if chosen is None or chosen is GENERIC:
        return (chosen,) if chosen else ()
    return chosen, GENERIC
