"""Running one prompt through the model, alone and in chunks.

    tokens   p0 p1 p2 … … … p(L-1) | g0 g1 … g(k-1)      prompt, then tokens to run again
    run      |- chunk -|- chunk -|                        all but the last of them
    then     the last one is the row's first decode step

Each prompt is prefilled by itself because that is exact for every family, and because a
failure stays with its request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from bushel.cache import Snapshot, take_snapshot
from bushel.core import IntegrityError, RequestError, TokenLogprob
from bushel.engine.sampler import logprobs_of
from bushel.engine.sequence import Phase, Sequence
from bushel.models import Model, Prompt, State


@dataclass(eq=False)
class Ready:
    """A sequence that can decode: its state, or a snapshot shared with its siblings."""

    sequence: Sequence
    prompt: Prompt
    position: int
    state: State | None
    snapshot: Snapshot | None = None

    def take_state(self, model: Model) -> State:
        if self.state is not None:
            return self.state
        assert self.snapshot is not None
        return self.snapshot.restore(model.make_state())

    @property
    def token(self) -> int:
        """The token that has not been run yet."""
        tokens = self.sequence.tokens
        return tokens[-1] if tokens else self.prompt.ids[-1]


@dataclass(eq=False)
class Prefill:
    """The prefill of one request's prompt, for all of its choices."""

    model: Model
    sequences: list[Sequence]
    order: int
    last_served: float
    prompt: Prompt | None = None
    state: State = field(default_factory=list)
    done: int = 0
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=list)

    @property
    def replay(self) -> list[int]:
        return self.sequences[0].tokens

    @property
    def target(self) -> int:
        """Tokens to run: all of them but the last."""
        return len(self.sequences[0].request.prompt.ids) + len(self.replay) - 1

    @property
    def remaining(self) -> int:
        return self.target - self.done

    def begin(self) -> None:
        """Embed the prompt; idempotent."""
        if self.prompt is not None:
            return
        prompt = self.model.embed(self.sequences[0].request.prompt)
        if prompt.spans and prompt.spans[-1][1] == len(prompt.ids) and not self.replay:
            raise RequestError(
                "The prompt ends inside an image; some text has to follow it.",
                code="invalid_media",
                param="messages",
            )
        self.prompt = prompt
        self.state = self.model.make_state()
        self.prompt_logprobs = [None] if self._wanted_logprobs is not None else []

    def run(self, tokens: int) -> list[mx.array]:
        """Run about so many more tokens; returns what has to be evaluated for that."""
        self.begin()
        prompt = self.prompt
        assert prompt is not None
        if self.remaining <= 0:
            return []
        length, want = len(prompt.ids), self.done + tokens
        if self.done < length:
            end = prompt.cut(self.done, want, min(self.target, length))
            logits = self.model.prefill(prompt, self.done, end, self.state)
            self._keep_logprobs(logits, self.done, end)
        else:
            end = min(want, self.target)
            again = mx.array([self.replay[self.done - length : end - length]])
            self.model.forward(again, [self.done + prompt.delta], self.state)
        if end <= self.done:
            raise IntegrityError(f"a chunk from {self.done} to {end}")
        self.done = end
        return [layer.state for layer in self.state]

    def finish(self) -> list[Ready]:
        """One row per choice that is still wanted; the first one owns the state."""
        assert self.prompt is not None
        wanted = [sequence for sequence in self.sequences if not sequence.done]
        snapshot = take_snapshot(self.state, self.done) if len(wanted) > 1 else None
        for sequence in wanted:
            sequence.phase = Phase.READY
        return [
            Ready(sequence, self.prompt, self.done, None if at else self.state, snapshot)
            for at, sequence in enumerate(wanted)
        ]

    @property
    def _wanted_logprobs(self) -> int | None:
        return self.sequences[0].decoding.prompt_logprobs

    def _keep_logprobs(self, logits: mx.array, start: int, end: int) -> None:
        if self._wanted_logprobs is None or self.replay or self.prompt is None:
            return
        following = mx.array(self.prompt.ids[start + 1 : end + 1])
        found = logprobs_of(logits[0], following, self._wanted_logprobs)
        host: list[Any] = [array.tolist() for array in (following, *found)]
        for token, logprob, best, names in zip(*host, strict=True):
            top = tuple(zip(names, best, strict=True)) if self._wanted_logprobs else ()
            self.prompt_logprobs.append(TokenLogprob(token, logprob, top))
