"""What a reply is watched for, by the formats of its model and the tools that were offered."""

from __future__ import annotations

from functools import lru_cache

from bushel.chat.reply.thinking_formats import THINKING_FORMATS
from bushel.chat.tool_parsers.generic import GENERIC
from bushel.chat.tool_parsers.reading.marker_search import MarkerWatch
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.chat.tool_parsers.tool_format import ToolFormat
from bushel.core import ReplyFormat


class MarkerSets:
    """Markers for each place: `first`, where nothing was said; `later`, behind text; `inside`
    thoughts. Without offered tools no calls are looked for.

    Special tokens of the formats have no meaning in some of these places; they are then `dropped`,
    as all other special tokens are.
    """

    def __init__(self, reply_format: ReplyFormat, tools: bool):
        self.formats = _formats(reply_format) if tools else ()
        thinking = THINKING_FORMATS.get(reply_format.thinking)
        self.begins = thinking.begins if thinking else ()
        self.ends = thinking.ends if thinking else ()
        own = self.formats[0].later_starts if self.formats else ()
        calls = [start for format in self.formats for start in format.later_starts]
        special = {text for _, text in reply_format.markers}
        # Such a start cannot be something that is only talked about.
        self.certain = tuple(start for start in own if start in special)
        self.dropped = tuple(special - {*calls, *self.begins, *self.ends})
        thoughts = (*self.begins, *self.ends, *(thinking.plain if thinking else ()), *self.dropped)
        leading = [start for format in self.formats for start in format.starts]
        self.first = MarkerWatch((*leading, *thoughts))
        anywhere = thinking is not None and thinking.anywhere
        self.later = MarkerWatch((*calls, *(thoughts if anywhere else self.dropped)))
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
    if chosen is None or chosen.whole_reply:
        return ()
    return (GENERIC,) if chosen is GENERIC else (chosen, GENERIC)
