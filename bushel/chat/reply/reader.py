"""One choice's text, to deltas."""

from __future__ import annotations

from bushel.chat.reply.format import Offered
from bushel.core import Delta, FinishReason, Style, Text


class Reader:
    """Feed it a reply's text in any pieces; their deltas, joined, are the same for all cuts.

    opened: the prompt ends inside a thinking block.
    """

    def __init__(self, style: Style, offered: Offered, *, opened: bool = False):
        self.calls = 0  # that were begun

    def feed(self, text: str) -> list[Delta]:
        return [Text(text)] if text else []

    def finish(self) -> list[Delta]:
        """No more text comes."""
        return []

    def reason(self, finish: FinishReason) -> FinishReason:
        """Why the reply ended, as an API tells it: with calls, that it made calls."""
        return finish
