"""What is known of one request, for logs, metrics and `/v1/status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bushel.core.wire import Started

Phase = Literal["loading", "preparing", "queued", "prefill", "decode", "done"]


@dataclass(frozen=True)
class Timings:
    """Seconds of a request: before its prompt began to run, while it ran, and from the first
    token to the last.
    """

    waited: float
    prompt: float
    reply: float


@dataclass
class Record:
    """Times are of `awake_clock`, in seconds; None: not yet."""

    id: str
    api: str
    model: str
    stream: bool
    choices: int
    arrived: float
    owner: str = ""  # whose it is: `callers.owner_of`
    part: bool = False  # of a request that is logged as a whole
    background: bool = False  # nobody waits for it
    phase: Phase = "preparing"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    hit: str = ""  # exact, prefix, shorter, fork or disk; empty: nothing was reused
    why: str = ""  # not more
    reason: str = ""  # the same in a word
    completion_tokens: int = 0
    drafted_tokens: int = 0  # guessed ahead
    accepted_tokens: int = 0  # of those, how many are part of the reply
    accepted: float | None = None  # by the engine
    started: float | None = None  # its prompt began to run
    first_token: float | None = None
    last_token: float | None = None
    largest_gap: float = 0.0  # between two tokens of one choice
    finished: float | None = None
    finish_reasons: list[str] = field(default_factory=list)
    status: int = 200  # of the answer; 499: the client went away
    error: str | None = None  # code
    restarts: int = 0  # of the engine, survived while waiting
    prefill_told: float | None = None  # when the log last said how far its prompt is
    cancelled: bool = False  # by request, while it was being prepared
    max_tokens: int | None = None  # of a reply; None: it is no reply that was asked for

    def start(self, started: Started, now: float) -> None:
        """Its prompt begins to run."""
        self.started, self.phase = now, "prefill"
        self.cached_tokens, self.hit = started.cached, started.hit
        self.why, self.reason = started.why, started.reason

    def requeue(self, restarts: int) -> None:
        """Its engine died before it said anything of it."""
        self.phase, self.started, self.restarts = "queued", None, restarts
        self.cached_tokens, self.hit, self.why, self.reason = 0, "", "", ""

    @property
    def rate(self) -> float | None:
        """Tokens per second after the first one."""
        if self.first_token is None or self.last_token is None:
            return None
        seconds = self.last_token - self.first_token
        return (self.completion_tokens - self.choices) / seconds if seconds > 0 else None

    @property
    def timings(self) -> Timings:
        """So far."""
        started = self.arrived if self.started is None else self.started
        first = started if self.first_token is None else self.first_token
        last = first if self.last_token is None else self.last_token
        return Timings(started - self.arrived, first - started, last - first)

    def report(self, now: float, row: Mapping[str, Any] | None) -> dict[str, Any]:
        """As `/v1/status` shows it (B53); `row` is what the engine says of it."""
        first = self.first_token
        run = 0 if first is None else self.prompt_tokens
        return {
            "id": self.id,
            "api": self.api,
            "model": self.model,
            "stream": self.stream,
            "phase": self.phase,
            "prefilled_tokens": run if row is None else row.get("prefilled_tokens", run),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "hit": self.hit,
            "why": self.why,
            "completion_tokens": self.completion_tokens,
            "drafted_tokens": self.drafted_tokens,
            "accepted_tokens": self.accepted_tokens,
            "choices": self.choices,
            "age_seconds": now - self.arrived,
            "first_token_seconds": None if first is None else first - self.arrived,
            "tokens_per_second": self.rate,
            "largest_gap_seconds": self.largest_gap,
        }

    def summary(self, now: float) -> dict[str, Any]:
        """The same of one that is finished."""
        assert self.finished is not None
        return {
            **self.report(now, None),
            "total_seconds": self.finished - self.arrived,
            "finish_reasons": list(self.finish_reasons),
            "status": self.status,
            "error": self.error,
        }
