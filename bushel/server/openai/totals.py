"""What a request has used so far, and where chunks say it."""

from __future__ import annotations

from typing import Any

import msgspec

from bushel.server.openai.schema import Sampling
from bushel.server.openai.shapes import usage_of
from bushel.server.service.multi_ticket import MultiTicket

_encode = msgspec.json.encode


class Totals:
    """`tokens` is the writer's to count."""

    def __init__(self, answer: MultiTicket, body: Sampling):
        self._answer = answer
        self._at_end = body.wants_usage
        self._running = body.wants_running_usage
        self._plain = b',"usage":null}\n\n' if body.wants_usage else b"}\n\n"
        self.tokens = 0

    def usage(self) -> dict[str, Any]:
        return usage_of(self._answer.usage(self.tokens))

    def tail(self) -> bytes:
        """What ends a chunk."""
        return b',"usage":' + _encode(self.usage()) + b"}\n\n" if self._running else self._plain

    def last(self, head: bytes) -> bytes:
        """The chunk of usage alone, if it was asked for; `head` ends where choices begin."""
        return head + b'],"usage":' + _encode(self.usage()) + b"}\n\n" if self._at_end else b""
