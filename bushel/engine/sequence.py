"""One choice of one request, from its arrival to its finish reason.

waiting ─> prefill ─> ready ─> decode ─> done
              ^                   │
              └── after a fault ──┘   rebuilt from its tokens
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from bushel.core import Decoding, Event, FinishReason, Request, TokenLogprob
from bushel.engine.reply import Decode, Reply


class Phase(StrEnum):
    WAITING = "waiting"
    PREFILL = "prefill"
    READY = "ready"
    DECODE = "decode"
    DONE = "done"


@dataclass(eq=False)
class Sequence:
    request: Request
    choice: int
    limit: int  # most tokens to generate, clamped to the context
    reply: Reply
    phase: Phase = Phase.WAITING
    tokens: list[int] = field(default_factory=list)  # generated and read back
    launched: int = 0  # generated, possibly still on the device
    suspect: bool = False  # was in a failed step: runs alone before it may join again
    faults: int = 0

    @classmethod
    def start(cls, request: Request, choice: int, decode: Decode, context: int | None) -> Sequence:
        decoding = request.choices[choice]
        room = decoding.max_tokens
        if context is not None:
            room = min(room, context - len(request.prompt.ids))
        return cls(request, choice, room, Reply(decode, decoding.stops))

    @property
    def decoding(self) -> Decoding:
        return self.request.choices[self.choice]

    @property
    def done(self) -> bool:
        return self.phase is Phase.DONE

    def add(self, token: int, logprob: TokenLogprob | None) -> Event:
        """Take one token read back from the device; may end the sequence."""
        self.tokens.append(token)
        finish: FinishReason | None = None
        long_enough = len(self.tokens) >= self.decoding.min_tokens
        if token in self.decoding.end_ids:
            finish = "stop"
            self.reply.finish()
        elif self.reply.add(token, stops_count=long_enough):
            finish = "stop"
        elif len(self.tokens) >= self.limit:
            finish = "stop" if self.reply.finish() and long_enough else "length"
        return self._event((token,), finish, logprob)

    def end(self, reason: FinishReason, error: str | None = None) -> Event:
        """End without a token: abort, or an error."""
        self.reply.finish()
        return self._event((), reason, None, error)

    def _event(
        self,
        tokens: tuple[int, ...],
        finish: FinishReason | None,
        logprob: TokenLogprob | None,
        error: str | None = None,
    ) -> Event:
        if finish is not None:
            self.phase = Phase.DONE
        return Event(
            request_id=self.request.id,
            choice=self.choice,
            token_ids=tokens,
            text=self.reply.take(),
            logprobs=() if logprob is None else (logprob,),
            finish_reason=finish,
            error=error,
        )
