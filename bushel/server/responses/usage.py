"""What a reply has cost so far, thoughts by themselves."""

from __future__ import annotations

from typing import Any

from bushel.core import Event
from bushel.server.api.thought_tokens import ThoughtTokens
from bushel.server.service.multi_ticket import MultiTicket


class ResponseTally:
    def __init__(self, answer: MultiTicket):
        self._answer = answer
        self._thoughts = ThoughtTokens()
        self.tokens = 0

    def take(self, event: Event) -> None:
        self.tokens += len(event.token_ids)
        self._thoughts.take(event)

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
            "output_tokens_details": {
                **ticket.drafts.usage,
                "reasoning_tokens": self._thoughts.number,
            },
            "total_tokens": prompt + self.tokens,
        }
