"""What is tried beside every other format, and where a template shows none (B25)."""

from __future__ import annotations

from bushel.chat.reply.format import Format, Offered, Section
from bushel.chat.reply.formats.calls import BARE, TAGS, Calls
from bushel.chat.reply.formats.functions import FUNCTION


class Generic(Format):
    name = "generic"
    starts = (*BARE, *TAGS, FUNCTION)
    leading = True
    anywhere = (*TAGS, FUNCTION)
    markup = tuple(filter(None, TAGS.values()))

    def section(self, start: str, offered: Offered, first: int) -> Section:
        return Calls(start, offered, first)
