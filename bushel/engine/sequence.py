"""One choice of one request, from its arrival to its finish reason.

waiting ─> prefill ─> ready ─> decode ─> done
              ^         ^         │
              │         └─────────┤   preempted, with its state
              └── after a fault ──┘   rebuilt from its tokens; so is one preempted without state
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from bushel.cache.prefix import Key, ReusePlan, key_of
from bushel.core import (
    BushelError,
    Decoding,
    Event,
    FinishReason,
    Request,
    RequestError,
    TokenLogprob,
)
from bushel.engine.constraints.constraint import ConstrainedRow
from bushel.engine.drafts.acceptance import Acceptance
from bushel.engine.plan import Row
from bushel.text.detokenizer import Decode, OutputProcessor

_NOWHERE = Row(-1)
_PROVEN = 64  # tokens that a row says after a failed step to show that it was not to blame


class Phase(StrEnum):
    WAITING = "waiting"
    PREFILL = "prefill"
    READY = "ready"
    DECODE = "decode"
    DONE = "done"


@dataclass(eq=False, slots=True)
class Sequence:
    request: Request
    choice: int
    decoding: Decoding
    limit: int  # most tokens to generate, clamped to the context
    reply: OutputProcessor | None  # only where a stop string may end it
    key: Key  # of its prompt
    phase: Phase = Phase.WAITING
    tokens: list[int] = field(default_factory=list)  # generated and read back
    launched: int = 0  # generated, possibly still on the device
    suspect: bool = False  # was in a failed step: runs alone before it may join again
    faults: int = 0  # steps that failed with it, since it last proved itself
    faulted_at: int = 0  # tokens that it had said at the last of them
    device_faults: int = 0
    failed: bool = False
    prompt_told: bool = False  # the log-probabilities of its prompt, if they were asked for
    reuse: ReusePlan = field(default_factory=ReusePlan)  # of its prompt
    constrained: ConstrainedRow | None = None  # what it may say; there before it decodes
    acceptance: dict[str, Acceptance] = field(default_factory=dict)  # of drafts, by drafter
    uses_head: bool = True  # whether a prediction head may draft for it, if there is one
    row: Row = _NOWHERE  # as the scheduler sees it; `request_queue` keeps it

    @classmethod
    def start(
        cls,
        request: Request,
        choice: int,
        decode: Decode,
        context: int | None,
        key: Key | None = None,
    ) -> Sequence:
        decoding = request.choices[choice]
        limit = decoding.max_tokens
        if context is not None:
            limit = min(limit, context - len(request.prompt.ids))
        reply = OutputProcessor(decode, decoding) if decoding.stops else None
        key = key_of(request.prompt) if key is None else key
        return cls(request, choice, decoding, limit, reply, key)

    @property
    def root(self) -> str:
        """Sequences of the same one share what was computed."""
        return self.request.salt

    @property
    def run_key(self) -> Key:
        """Of all tokens that were run: decoding is a step ahead of what was read."""
        return np.concatenate([self.key, np.array(self.tokens[: self.launched - 1], np.int64)])

    @property
    def done(self) -> bool:
        return self.phase is Phase.DONE

    @property
    def length(self) -> int:
        """Of prompt and reply, at their longest."""
        return len(self.request.prompt.ids) + self.limit

    def reach(self, room: int) -> int:
        """What it comes to with so many more tokens, if it may be as long."""
        so_far = len(self.request.prompt.ids) + max(self.launched, len(self.tokens))
        return min(self.length, so_far + room)

    @property
    def draft_room(self) -> int:
        """Most drafts that its next pass may take: the token after them is said as well.

        None soon after a failed step: in plain ones it is found out whose fault that was.
        """
        drafts = self.decoding.speculate and (not self.faults or self._proven)
        return max(0, self.limit - len(self.tokens) - 1) if drafts else 0

    @property
    def _proven(self) -> bool:
        return len(self.tokens) - self.faulted_at >= _PROVEN

    def was_in_failed_step(self) -> None:
        """Whoever is to blame, it runs alone before it may join again."""
        self.suspect, self.faults = True, 1 if self._proven else self.faults + 1
        self.faulted_at = len(self.tokens)

    def accepted_from(self, drafter: str, prior: float) -> Acceptance:
        """Its record of a drafter; it stays when the row is preempted or rebuilt."""
        if drafter not in self.acceptance:
            self.acceptance[drafter] = Acceptance(prior)
        return self.acceptance[drafter]

    def add(
        self,
        tokens: tuple[int, ...],
        logprobs: tuple[TokenLogprob, ...] = (),
        *,
        drafted: int = 0,
    ) -> Event:
        """Take tokens read back from the device, up to one that ends the sequence.

        drafted: drafts of the pass that they come from; all of the tokens but the last were some.
        """
        finish: FinishReason | None = None
        taken = 0
        while finish is None and taken < len(tokens):
            finish = self._take(tokens[taken])
            taken += 1
        if finish is not None:
            self.phase = Phase.DONE
        elif self.constrained is not None:
            self.constrained.follow(self.tokens)
        return Event(
            self.request.id,
            self.choice,
            tokens[:taken],
            logprobs=logprobs[:taken],
            finish_reason=finish,
            drafted=drafted,
            accepted=min(taken, len(tokens) - 1) if drafted else 0,
        )

    def _take(self, token: int) -> FinishReason | None:
        """Whether the reply ends with it, and why."""
        self.tokens.append(token)
        if token in self.decoding.end_ids if self.reply is None else self.reply.add(token):
            return "stop"
        if len(self.tokens) < self.limit:
            return None
        return "stop" if self.reply is not None and self.reply.finish() else "length"

    def give(self, embedding: tuple[float, ...]) -> Event:
        """End with a result that is no text."""
        return self.end("stop")._replace(embedding=embedding)

    def fail(self, error: Exception) -> Event:
        known = isinstance(error, BushelError)
        message = str(error) if known else f"{type(error).__name__}: {error}"
        return self.end("error", message, error.code if isinstance(error, RequestError) else None)

    def end(self, reason: FinishReason, error: str | None = None, code: str | None = None) -> Event:
        """End without a token: abort, an error, or another result than text."""
        self.phase = Phase.DONE
        self.failed = reason == "error"
        return Event(self.request.id, self.choice, finish_reason=reason, error=error, code=code)
