"""A reply as it streams from a server: its text, thoughts and calls, and what it cost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from bushel.commands.server_client import ServerClient, ServerError

PartKind = Literal["text", "thought", "call", "arguments"]
_QUICK = 2.0  # seconds for what is nice to know
_USAGE = {"include_usage": True, "continuous_usage_stats": True}


@dataclass
class StreamedCall:
    name: str
    arguments: str = ""  # JSON


@dataclass
class StreamedReply:
    """What came so far. Seconds are counted from the request on."""

    text: str = ""
    thoughts: str = ""
    calls: list[StreamedCall] = field(default_factory=list)
    model: str = ""
    finish_reason: str | None = None  # None: it did not come to its end
    usage: dict[str, Any] = field(default_factory=dict)
    first: float | None = None  # seconds to the first token
    seconds: float = 0.0
    thinking_seconds: float = 0.0
    id: str = ""
    known: dict[str, Any] = field(default_factory=dict)  # what the server itself measured

    @property
    def tokens(self) -> int:
        return int(self.usage.get("completion_tokens", 0))

    @property
    def prompt_tokens(self) -> int:
        return int(self.usage.get("prompt_tokens", 0))

    @property
    def cached_tokens(self) -> int:
        return int((self.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    @property
    def rate(self) -> float | None:
        """Tokens a second, once the first is there; None if that is not to be told."""
        if rate := self.known.get("tokens_per_second"):
            return float(rate)
        if self.first is None or self.tokens < 2 or self.seconds <= self.first:
            return None
        return (self.tokens - 1) / (self.seconds - self.first)

    def figures(self) -> str:
        """What it cost, as the page shows it."""
        parts = [f"{self.tokens:,} tokens"]
        if self.rate is not None:
            parts.append(f"{self.rate:.1f} tokens/s")
        first = self.known.get("first_token_seconds") or self.first
        if first is not None:
            parts.append(f"first after {first:.2f} s")
        if self.cached_tokens:
            parts.append(f"{self.cached_tokens:,} of {self.prompt_tokens:,} cached")
        return " · ".join(parts)

    def stream(
        self, server: ServerClient, request: Mapping[str, Any]
    ) -> Generator[tuple[PartKind, str], None, None]:
        """Parts as they come. Closing it cancels the request. ServerError if it fails."""
        began = time.monotonic()
        body = {**request, "stream": True, "stream_options": _USAGE}
        with contextlib.closing(server.events("/v1/chat/completions", body)) as events:
            for event in events:
                self.seconds = time.monotonic() - began
                self.model = str(event.get("model") or self.model)
                self.id = str(event.get("id") or self.id)
                self.usage = event.get("usage") or self.usage
                for choice in event.get("choices", ()):
                    for kind, part in self._parts(choice.get("delta") or {}):
                        if self.first is None:
                            self.first = self.seconds
                        if kind == "thought":
                            self.thinking_seconds = self.seconds - self.first
                        yield kind, part
                    self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def ask_figures(self, server: ServerClient) -> None:
        """As the server measured them: tokens that it made one by one may arrive together. Where it
        does not say, they are as they looked from here.
        """
        name = self.id.rpartition("-")[2]
        quick = ServerClient(server.url, server.key, patience=_QUICK)
        with contextlib.suppress(ServerError, KeyError, TypeError):
            recent = quick.get(f"/v1/status?model={quote(self.model)}")["recent"]
            self.known = next((one for one in recent if one["id"] == name), {})

    def _parts(self, delta: Mapping[str, Any]) -> Iterator[tuple[PartKind, str]]:
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self.thoughts += thought
            yield "thought", thought
        if text := delta.get("content"):
            self.text += text
            yield "text", text
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            if name := function.get("name"):
                self.calls.append(StreamedCall(name))
                yield "call", name
            if (part := function.get("arguments")) and self.calls:
                self.calls[-1].arguments += part
                yield "arguments", part
