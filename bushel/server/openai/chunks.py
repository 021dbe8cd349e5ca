"""What the streams of chunks have in common, whichever of the two APIs they belong to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from bushel.core import Event, Usage
from bushel.server.api.errors import error_bytes
from bushel.server.api.thought_tokens import ThoughtTokens
from bushel.server.errors import ApiError
from bushel.server.http import sse
from bushel.server.openai.schema import OpenAIRequest
from bushel.server.service.multi_ticket import MultiTicket

_encode = msgspec.json.encode


def failed_stream(error: ApiError) -> bytes:
    """What ends a stream that fails."""
    return sse.data(error_bytes(error))


def what_stopped(event: Event, stop_ids: Collection[int]) -> str | int | None:
    """The text, or else the token, of those that the request named."""
    last = event.token_ids[-1] if event.token_ids else None
    return last if event.stop is None and last in stop_ids else event.stop


class Chunked:
    """Part of a `server.response.Writer`."""

    def keepalive(self) -> bytes:
        return sse.KEEPALIVE

    def failed(self, error: ApiError) -> bytes:
        return failed_stream(error)


class ChunkUsage:
    """What a request has used so far, where chunks say it. `tokens` is the writer's to count."""

    def __init__(self, answer: MultiTicket, body: OpenAIRequest):
        self._answer = answer
        self._at_end = body.wants_usage
        self._running = body.wants_running_usage
        self._plain = b',"usage":null}\n\n' if body.wants_usage else b"}\n\n"
        self._thoughts = [ThoughtTokens() for _ in range(answer.choices)]
        self.tokens = 0

    def take(self, event: Event) -> None:
        """Of a reply that is read for thoughts."""
        self.tokens += len(event.token_ids)
        self._thoughts[event.choice].take(event)

    def usage(self) -> dict[str, Any]:
        usage = _usage_object(self._answer.usage(self.tokens))
        thoughts = sum(choice.number for choice in self._thoughts)
        details = {**self._answer.drafts.usage, "reasoning_tokens": thoughts}
        return {**usage, "completion_tokens_details": details}

    def tail(self) -> bytes:
        """What ends a chunk."""
        return b',"usage":' + _encode(self.usage()) + b"}\n\n" if self._running else self._plain

    def last(self, head: bytes) -> bytes:
        """The chunk of usage alone, if it was asked for; `head` ends where choices begin."""
        return head + b'],"usage":' + _encode(self.usage()) + b"}\n\n" if self._at_end else b""


def _usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
