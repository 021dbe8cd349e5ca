"""What a reply is watched for, by the style of its model and the tools that were offered."""

from __future__ import annotations

from functools import lru_cache

from bushel.chat.reply.marker_watch import MarkerWatch
from bushel.chat.reply.thinking_formats import FORMS
from bushel.chat.tool_parsers import FORMATS, GENERIC
from bushel.chat.tool_parsers.tool_format import ToolFormat
from bushel.core import ReplyFormat


def starts(format: ToolFormat) -> tuple[str, ...]:
    """Where calls may begin behind other text."""
    return format.anywhere if format.leading else format.starts


class MarkerSets:
    """Markers for each place: `first`, where nothing was said; `later`, behind text; `inside`
    thoughts. Without offered tools no calls are looked for.

    Special tokens of the style have no meaning in some of these places; they are then `dropped`,
    as all other special tokens are.
    """

    def __init__(self, reply_format: ReplyFormat, tools: bool):
        self.formats = _formats(reply_format) if tools else ()
        form = FORMS.get(reply_format.thinking)
        self.begins = form.begins if form else ()
        self.ends = form.ends if form else ()
        own = starts(self.formats[0]) if self.formats else ()
        calls = [start for format in self.formats for start in starts(format)]
        special = {text for _, text in reply_format.markers}
        # Such a start cannot be something that is only talked about.
        self.certain = tuple(start for start in own if start in special)
        self.dropped = tuple(special - {*calls, *self.begins, *self.ends})
        thoughts = (*self.begins, *self.ends, *(form.plain if form else ()), *self.dropped)
        leading = [start for format in self.formats for start in format.starts]
        self.first = MarkerWatch((*leading, *thoughts))
        self.later = MarkerWatch((*calls, *(thoughts if form and form.anywhere else self.dropped)))
        self.inside = MarkerWatch((*own, *self.ends, *self.dropped))

    def format(self, start: str) -> ToolFormat | None:
        return next((format for format in self.formats if start in format.starts), None)


@lru_cache(maxsize=32)
def marker_sets_for(reply_format: ReplyFormat, tools: bool) -> MarkerSets:
    """tools: whether any were offered."""
    return MarkerSets(reply_format, tools)


def _formats(reply_format: ReplyFormat) -> tuple[ToolFormat, ...]:
    """The model's, and what is tried beside it (B25)."""
    chosen = FORMATS.get(reply_format.tools)
    if chosen is None or chosen is GENERIC:
        return (chosen,) if chosen else ()
    return chosen, GENERIC
