"""What a reply has cost so far, thoughts by themselves."""

from __future__ import annotations

from typing import Any

from bushel.core import Event
from bushel.core.delta import CallPart, TextDelta, ThoughtDelta
from bushel.server.service.multi_ticket import MultiTicket


class ResponseTally:
    """Tokens that say nothing yet (markup, halves of characters) count with what follows them."""

    def __init__(self, answer: MultiTicket):
        self._answer = answer
        self._waiting = 0
        self.tokens = 0
        self.thoughts = 0

    def take(self, event: Event) -> None:
        self.tokens += len(event.token_ids)
        self._waiting += len(event.token_ids)
        if not event.deltas:
            return
        thought = sum(len(delta.text) for delta in event.deltas if isinstance(delta, ThoughtDelta))
        if thought:
            # One event is one token, unless the client reads slowly.
            everything = sum(map(_length, event.deltas))
            self.thoughts += round(self._waiting * thought / everything)
        self._waiting = 0

    def usage(self) -> dict[str, Any]:
        [ticket] = self._answer.tickets
        prompt = len(ticket.prompt_ids)
        return {
            "input_tokens": prompt,
            "input_tokens_details": {
                "cached_tokens": ticket.cached_tokens,
                "cache_write_tokens": ticket.stored_tokens,
            },
            "output_tokens": self.tokens,
            "output_tokens_details": {"reasoning_tokens": self.thoughts},
            "total_tokens": prompt + self.tokens,
        }


def _length(delta: Any) -> int:
    if isinstance(delta, TextDelta | ThoughtDelta):
        return len(delta.text)
    return len(delta.json) if isinstance(delta, CallPart) else 0
