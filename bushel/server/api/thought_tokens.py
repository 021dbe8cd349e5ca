"""How many tokens of a reply are thoughts."""

from __future__ import annotations

from bushel.core import Event
from bushel.core.delta import CallPart, Delta, TextDelta, ThoughtDelta


class ThoughtTokens:
    """Of one choice. Tokens that say nothing yet (markup, halves of characters) count with what
    follows them.
    """

    def __init__(self) -> None:
        self._waiting = 0
        self.number = 0

    def take(self, event: Event) -> None:
        self._waiting += len(event.token_ids)
        if not event.deltas:
            return
        thought = sum(len(delta.text) for delta in event.deltas if isinstance(delta, ThoughtDelta))
        if thought:
            # One event is one token, unless the client reads slowly.
            everything = sum(map(_length, event.deltas))
            self.number += round(self._waiting * thought / everything)
        self._waiting = 0


def _length(delta: Delta) -> int:
    if isinstance(delta, TextDelta | ThoughtDelta):
        return len(delta.text)
    return len(delta.json) if isinstance(delta, CallPart) else 0
