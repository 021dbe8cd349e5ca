"""Running one prompt through the model, in chunks.

    tokens   p0 p1 p2 … … … p(L-1) | g0 g1 … g(k-1)      prompt, then tokens to run again
    run      restored |- chunk -|- chunk -|               all but the last of them
    then     the last one is the row's first decode step; for an embedding it is run with the others

Each prompt is prefilled by itself because that is exact for every family, and because a
failure stays with its request; short prompts of some models share a pass (`prefill_pass`). What an
earlier prompt has computed is restored, and what this one computes is kept where a later one may
need it (`snapshot_points`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
import numpy as np
from llguidance import LLMatcher

from bushel.cache import take_snapshot
from bushel.cache.paged.page_pool import pages_of
from bushel.cache.prefix import DiskFetch, Key, Node, PrefixCache, ReusePlan
from bushel.core import BushelError, Event, IntegrityError, RequestError, TokenLogprob
from bushel.core.wire import Started
from bushel.engine.drafts.head_context import HeadContext
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.row_state import new_row
from bushel.engine.sampling.sampler import logprobs_of, ranks_of
from bushel.engine.sequence import Phase, Sequence
from bushel.engine.snapshot_points import FAR, SnapshotPoint, plan_snapshot_points
from bushel.models import Model, Prompt, State
from bushel.models.device import raise_device_fault

log = logging.getLogger(__name__)

# Log-probabilities of a prompt in one event: more would keep its receiver busy for too long.
_LOGPROBS = 256
_BEYOND = 8  # pages that a pass may need for a while, after a prompt's end


@dataclass(eq=False)
class Prefill:
    """The prefill of one request's prompt, for all of its choices."""

    model: Model
    sequences: list[Sequence]
    order: int
    last_served: float
    admitted: float = 0.0
    prefixes: PrefixCache | None = None  # where to find, and to keep, what was computed
    every: int = 0  # tokens between two states kept of a long prompt
    piece: int = 0  # tokens of every chunk, where the answer depends on them; 0: any number
    rebuilt: bool = False  # it begins again, and was reported when it first began
    alone: bool = False  # it shares no pass: one that it shared has failed
    prompt: Prompt | None = None
    state: State = field(default_factory=list)
    done: int = 0  # tokens run, or restored
    reuse: ReusePlan = field(default_factory=ReusePlan)  # what is, or could be, restored
    fetch: DiskFetch | None = None  # what is read from disk for it; it waits for that
    compiling: Future[list[LLMatcher]] | None = None  # its grammar; it waits for that too
    from_disk: frozenset[Node] = frozenset()  # what was
    kept: int = 0  # tokens whose state is kept
    cuts: tuple[SnapshotPoint, ...] = ()  # ahead
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=list)
    pooled: mx.array | None = None  # [D]: an encoder's result; the last hidden state, or their sum
    context: HeadContext | None = None  # what a prediction head will know of its rows

    @property
    def replay(self) -> list[int]:
        return self.sequences[0].tokens

    @property
    def target(self) -> int:
        """Tokens to run: all of them but the last, unless that is all there is to do."""
        last = 0 if self.wants_embedding else 1
        return len(self.sequences[0].request.prompt.ids) + len(self.replay) - last

    @property
    def _restorable(self) -> int:
        """Tokens that may be restored: at least one is run."""
        return len(self.sequences[0].request.prompt.ids) + len(self.replay) - 1

    @property
    def key(self) -> Key:
        """Of all tokens to run, and the last."""
        sequence = self.sequences[0]
        if not sequence.tokens:
            return sequence.key
        return np.concatenate([sequence.key, np.array(sequence.tokens, np.int64)])

    @property
    def remaining(self) -> int:
        return self.target - self.done

    @property
    def expected(self) -> int:
        """Tokens that will have to be run; before it begins, as it was planned on arrival."""
        begun = self.done if self.prompt is not None else self.reuse.position
        return max(0, self.target - begun)

    def arrive(self) -> None:
        """Plan what could be restored, and begin to read what is on disk."""
        self.plan_reuse()
        if self.prefixes is not None and not self._needs_all:
            self.fetch = self.prefixes.ahead(self.sequences[0].root, self.key, self._restorable)

    @property
    def complete(self) -> bool:
        """Whether all that it waits for, beside a slot, is there."""
        return self.fetch is None and self.compiling is None

    @property
    def has_been_read(self) -> bool:
        return self.fetch is not None and self.fetch.done

    @property
    def has_been_compiled(self) -> bool:
        return self.compiling is not None and self.compiling.done()

    def take_read(self) -> None:
        """Take in what was read for it."""
        assert self.fetch is not None
        assert self.prefixes is not None
        self.prefixes.arrived(self.fetch)
        self.from_disk, self.fetch = frozenset(self.fetch.loaded), None
        self.plan_reuse()

    def plan_reuse(self) -> None:
        """What could be restored now."""
        sequence = self.sequences[0]
        if self.prefixes is None:
            self.reuse = ReusePlan(why="prefix reuse is off", reason="off")
        elif self.wants_logprobs:
            why = "log-probabilities of the whole prompt were asked for"
            self.reuse = ReusePlan(why=why, reason="prompt_logprobs")
        elif self._means:
            why = "an embedding that is a mean needs the hidden states of all tokens"
            self.reuse = ReusePlan(why=why, reason="mean_pooling")
        else:
            self.reuse = self.prefixes.plan(sequence.root, self.key, self._restorable)
            if self.from_disk.intersection(self.reuse.nodes):
                self.reuse = replace(self.reuse, hit="disk")

    def begin(self) -> None:
        """Embed the prompt and restore what can be; idempotent."""
        if self.prompt is not None:
            return
        sequence, prefixes = self.sequences[0], self.prefixes
        self.plan_reuse()
        prompt = self._embedded()
        if prompt.spans and prompt.spans[-1][1] == len(prompt.ids) and not self.replay:
            raise RequestError(
                "The prompt ends inside an image; some text has to follow it.",
                code="invalid_media",
                param="messages",
            )
        restored = None
        if prefixes is not None:
            restored = prefixes.restore(self.reuse, self.key, self.target + 1)
        if restored is None and self.reuse.position:
            self.reuse = ReusePlan(why="what was kept could not be restored", reason="not_restored")
            prompt = self._embedded()
        self.prompt = prompt
        self.state = new_row(self.model) if restored is None else restored
        if self.model.pages is not None:
            begun = pages_of(self.reuse.position)
            self.model.pages.expect(pages_of(self.target) - begun + _BEYOND)
        self.done = self.kept = self.reuse.position
        if self.model.mtp is not None and self._drafts:
            self.context = HeadContext(remembers=prefixes is not None)
            if prefixes is not None:
                known = prefixes.ends.get(sequence.root, self.key, self.done)
                self.context.restore(self.model, prompt, self.ids, known)
        self.prompt_logprobs = [None] if self.wants_logprobs else []
        if prefixes is not None and not self.replay:
            if not self.rebuilt:
                prefixes.count(self.reuse, len(prompt.ids))
            borders = sequence.request.prompt.borders
            self.cuts = plan_snapshot_points(
                self.target + 1, self.done, borders, self.reuse.fork, self.every, prompt.uncut
            )
            self._keep()

    def started(self) -> list[Started]:
        """What is to be told when it has begun: nothing if it was told before."""
        if self.rebuilt:
            return []
        reuse = self.reuse
        for sequence in self.sequences:
            sequence.reuse = replace(reuse, nodes=())
        id = self.sequences[0].request.id
        return [Started(id, reuse.position, reuse.hit, reuse.why, reuse.reason)]

    def _embedded(self) -> Prompt:
        """The prompt from where it is restored on; a plan that does not hold is changed."""
        sequence, prefixes = self.sequences[0], self.prefixes
        features = prefixes.features(sequence.root) if prefixes is not None else None
        while True:
            start = self.reuse.position
            # Of one that runs again, perhaps all of the prompt and some of the reply are there.
            begin = min(start, len(sequence.request.prompt.ids) - 1)
            prompt = self.model.embed(sequence.request.prompt, begin, features)
            if prefixes is None:
                return prompt
            whole = (low for low, high in prompt.uncut if low < start < high)
            # What was seen in images may have taken the place of what the plan stood on.
            again = prefixes.plan(sequence.root, self.key, next(whole, start))
            if again.position == start:
                self.reuse = replace(self.reuse, nodes=again.nodes)
                return prompt
            self.reuse = again

    def run(self, tokens: int) -> list[mx.array]:
        """Run about so many more tokens; returns what has to be evaluated for that."""
        self.begin()
        prompt = self.prompt
        assert prompt is not None
        if self.remaining <= 0 or tokens < 1:  # it may have been planned to need none
            return []
        length, end = len(prompt.ids), self.end_of_piece(tokens)
        if self.done < length:
            logits = self._prefilled(prompt, end)
            self._keep_logprobs(logits, self.done, end)
        else:
            self._replayed(prompt, end)
        return self.ran_to(end)

    def end_of_piece(self, tokens: int) -> int:
        """Where a piece of about so many tokens ends."""
        prompt = self.prompt
        assert prompt is not None
        length, want = len(prompt.ids), self.done + (self._equal_piece or tokens)
        if self.done >= length:
            return min(want, self.target)
        last = min(self.target, length)
        if self.piece and self.done < length - 1:
            last = length - 1  # the last token is run by itself, as it was at first
        return prompt.cut(self.done, min(want, self._next_cut), last)

    def ran_to(self, end: int) -> list[mx.array]:
        """All tokens before this one have been run."""
        if end <= self.done:
            raise IntegrityError(f"a chunk from {self.done} to {end}")
        self.done = end
        self._keep()
        pooled = [] if self.pooled is None else [self.pooled]
        read = [] if self.context is None else self.context.arrays
        return [*(layer.state for layer in self.state), *pooled, *read]

    def _prefilled(self, prompt: Prompt, end: int) -> mx.array:
        """Logits of its tokens up to this one."""
        if not self.reads_hidden:
            return self.model.prefill(prompt, self.done, end, self.state)
        logits, hidden = self.model.prefill_with_hidden(prompt, self.done, end, self.state)
        self.read_hidden(hidden[0])
        return logits

    def _replayed(self, prompt: Prompt, end: int) -> None:
        """Run what was said already, up to this token."""
        length = len(prompt.ids)
        again = mx.array([self.replay[self.done - length : end - length]])
        at = [self.done + prompt.delta]
        if not self.reads_hidden:
            self.model.forward(again, at, self.state)
            return
        _, hidden = self.model.forward_with_hidden(again, at, self.state)
        self.read_hidden(hidden[0])

    @property
    def reads_hidden(self) -> bool:
        """Whether hidden states of its tokens are wanted, and not only what they leave behind."""
        return self.wants_embedding or self.context is not None

    def read_hidden(self, hidden: mx.array) -> None:
        """Take in the hidden states [n, D] of its next tokens."""
        if self.wants_embedding:
            self._pool(hidden)
        elif self.context is not None:
            assert self.prompt is not None
            self.context.add(self.model, self.prompt, self.ids, self.done, hidden[None])

    @property
    def _drafts(self) -> bool:
        """Whether a row of it may take drafts."""
        rows = self.sequences
        wished = any(row.decoding.speculate and row.uses_head for row in rows)
        return wished and not self.wants_embedding

    def _pool(self, hidden: mx.array) -> None:
        if not self._means:
            self.pooled = hidden[-1].astype(mx.float32)
            return
        more = hidden.astype(mx.float32).sum(axis=0)
        self.pooled = more if self.pooled is None else self.pooled + more

    @property
    def plain(self) -> bool:
        """Whether what is left of it is text, and no token's logits are wanted."""
        if self.wants_logprobs:
            return False
        if self.prompt is None:
            return not self.sequences[0].request.prompt.media
        return not self.prompt.spans and not self.prompt.uncut

    @property
    def ids(self) -> list[int]:
        """Its tokens, and of one that runs again those that it has said."""
        assert self.prompt is not None
        return [*self.prompt.ids, *self.replay]

    @property
    def _equal_piece(self) -> int:
        """What is run at once whatever else there is: of the prompt a piece, then every token."""
        assert self.prompt is not None
        return min(self.piece, 1) if self.done >= len(self.prompt.ids) - 1 else self.piece

    @property
    def _next_cut(self) -> int:
        """Where the present chunk has to end. State that can be cut by token needs no such end."""
        if self.prefixes is None or not self.prefixes.needs_snapshots:
            return self.target
        return next((cut.position for cut in self.cuts), self.target)

    def _keep(self) -> None:
        """Keep the state if a cut has been reached."""
        reached = [cut for cut in self.cuts if cut.position <= self.done]
        self.cuts = self.cuts[len(reached) :]
        for cut in reached:
            self._keep_as(cut.sort)

    def _keep_as(self, sort: str) -> None:
        sequence = self.sequences[0]
        assert self.prefixes is not None
        self.prefixes.keep(sequence.root, sequence.key[: self.done], self.state, sort)
        self.kept = self.done

    def leave(self) -> None:
        """Given up before its end: what has been run may serve the next try (B38)."""
        if self.compiling is not None:
            self.compiling.cancel()
        if self.prefixes is not None and not self.replay and self.done - self.kept >= FAR:
            self._keep_as("grid")

    @property
    def wants_embedding(self) -> bool:
        return self.sequences[0].request.result == "embedding"

    @property
    def _means(self) -> bool:
        pooling = not self.model.encodes and self.model.pooling == "mean"
        return pooling and self.wants_embedding

    @property
    def _needs_all(self) -> bool:
        """Whether what was computed before is of no use: what each token gives is wanted."""
        return self._means or self.wants_logprobs

    def embedding(self) -> tuple[float, ...]:
        """Of the whole prompt, as its model pools it; waits for the device."""
        assert self.pooled is not None
        pooled = self.pooled / self.done if self._means else self.pooled
        values: Any = pooled.tolist()
        if not all(map(math.isfinite, values)):
            raise BushelError("The model's embedding of this text is not a number.")
        return tuple(values)

    def prompt_logprob_events(self, sequence: Sequence) -> Iterator[Event]:
        """What a choice is told of its prompt, if it asked; once."""
        logprobs = () if sequence.prompt_told else tuple(self.prompt_logprobs)
        sequence.prompt_told = bool(logprobs) or sequence.prompt_told
        for at in range(0, len(logprobs), _LOGPROBS):
            part = logprobs[at : at + _LOGPROBS]
            yield Event(sequence.request.id, sequence.choice, prompt_logprobs=part)

    def finish(self) -> list[PrefilledRow]:
        """One row per choice that is still wanted; the first one owns the state."""
        assert self.prompt is not None
        wanted = [sequence for sequence in self.sequences if not sequence.done]
        snapshot = take_snapshot(self.state, self.done) if len(wanted) > 1 else None
        self._keep_hidden()
        for sequence in wanted:
            sequence.phase = Phase.READY
        return [
            PrefilledRow(
                sequence, self.prompt, self.done, None if at else self.state, snapshot, self.context
            )
            for at, sequence in enumerate(wanted)
        ]

    def _keep_hidden(self) -> None:
        """For prompts that begin with this one, which do without where it cannot be kept."""
        if self.context is None or self.prefixes is None:
            return
        try:
            recent = self.context.take_recent()
            self.prefixes.ends.put(self.sequences[0].root, self.key[: self.done], recent)
        except Exception as error:
            raise_device_fault(error)
            log.warning("what a prediction head knows of a prompt is not kept: %s", error)

    @property
    def wants_logprobs(self) -> bool:
        """Of its own tokens, whose logits are all made."""
        return self._wanted_logprobs is not None

    @property
    def _wanted_logprobs(self) -> int | None:
        return self.sequences[0].decoding.prompt_logprobs

    def _keep_logprobs(self, logits: mx.array, start: int, end: int) -> None:
        if self._wanted_logprobs is None or self.replay or self.prompt is None:
            return
        following = mx.array(self.prompt.ids[start + 1 : end + 1])
        logprobs = logprobs_of(logits[0], following, self._wanted_logprobs)
        ranks = ranks_of(logits[0], following)
        host: list[Any] = [array.tolist() for array in (following, *logprobs, ranks)]
        for token, logprob, best, names, rank in zip(*host, strict=True):
            top = tuple(zip(names, best, strict=True)) if self._wanted_logprobs else ()
            self.prompt_logprobs.append(TokenLogprob(token, logprob, top, rank))
