"""What constrained rows may say next, worked out on the host while the model runs.

A row is held to a grammar, to a budget for its thoughts, or to both. A mask is one bit for each
token, in words of 32; only constrained rows have one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np
from llguidance import LLExecutor, LLMatcher

from bushel.core import Decoding, IntegrityError, RequestError
from bushel.engine.constraints.thinking_budget import ThinkingProgress
from bushel.engine.sampling.chooser import Masks
from bushel.text.detokenizer import Decode
from bushel.text.grammar_compiler import error_of

# A mask takes 0.02 to 2 ms, and as long as two of the first sort to wake a thread for it.
_THREADS = min(8, os.cpu_count() or 1)
_DEAR = 0.0005  # seconds
# Seconds that a mask or a token of a grammar hardly ever takes, and how many of them a reply may
# cost the others that are in the batch with it.
_SLOW, _MOST_SLOW = 0.05, 2.0


class ConstrainedRow:
    """What one row is held to, and how far it has come. Follows the tokens that were read."""

    def __init__(self, decoding: Decoding, decode: Decode, matcher: LLMatcher | None):
        self.decoding = decoding
        self.matcher = matcher  # None: no grammar
        self.cost = 0.0  # seconds, of its last mask
        self._slow = 0.0  # seconds, of masks and tokens that were slow
        self._decode = decode
        self._begin()

    def _begin(self) -> None:
        constraint = self.decoding.constraint
        budget = constraint.budget if constraint is not None else None
        thoughts = None if budget is None else ThinkingProgress(budget, self._decode, self.decoding)
        self._thoughts = thoughts
        self._taken = 0  # tokens of the reply
        self.forced = self._next_forced()  # the one token that may come next

    def holds(self, index: int) -> bool:
        """Whether it may matter at this place of the reply, as far as its tokens are known."""
        free = self._thoughts is None or self._thoughts.free(index)
        return self.matcher is not None or not free

    def take(self, token: int) -> None:
        """What it says next; RequestError if it cannot be followed."""
        self._taken += 1
        self._consume(token)
        if self._thoughts is None:
            return
        if self.forced is not None:
            self._thoughts.close()
        else:
            self._thoughts.add(token)
        self.forced = self._next_forced()

    def follow(self, tokens: Sequence[int]) -> None:
        """Take what is new of all that has been read; go back if less was read than it took."""
        if self._taken > len(tokens):
            if self.matcher is not None:
                self.matcher.reset()
            self._begin()
        for token in tokens[self._taken :]:
            self.take(token)

    def _consume(self, token: int) -> None:
        if self.matcher is None:
            return
        start = time.thread_time()
        if not self.matcher.consume_token(token):
            raise self._lost()
        self._charge(time.thread_time() - start)

    @property
    def expensive(self) -> bool:
        """Whether its mask may as well be computed in a thread. One that is slow is measured."""
        return self.forced is None and _DEAR < self.cost <= _SLOW

    def measure(self, words: np.ndarray) -> None:
        """Its grammar's mask, if it needs one, computed in this thread."""
        if self.matcher is None or self.forced is not None:
            return
        start = time.thread_time()
        self.matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self.cost = time.thread_time() - start
        self._charge(self.cost)

    def _charge(self, seconds: float) -> None:
        self._slow += seconds if seconds > _SLOW else 0.0

    @property
    def too_slow(self) -> bool:
        """Whether it has cost the others more time than it may. The engine decides what follows."""
        return self._slow > _MOST_SLOW

    def _next_forced(self) -> int | None:
        forced = () if self._thoughts is None else self._thoughts.forced
        if not forced:
            return None
        # In the middle of a character the grammar lets nothing else begin.
        if self.matcher is not None and self.matcher.validate_tokens([*forced]) < len(forced):
            return None
        return forced[0]

    def allow(self, words: np.ndarray, ends: Sequence[int]) -> None:
        """Make `words` [W] what may come next; with a grammar, they hold its mask already.

        ends: the model's own end tokens, which are in the grammar's mask where it may end.
        """
        if self.forced is not None:
            words[:] = 0
            _set(words, (self.forced,))
            return
        row, matcher = self.decoding, self.matcher
        if matcher is None:
            words[:] = 0xFFFFFFFF
        elif matcher.is_error():
            raise self._lost()
        elif matcher.is_accepting():
            _clear(words, ends)
            _set(words, row.end_ids)
        if self._taken < row.min_tokens:
            _clear(words, row.banned_early)
        if not words.any():
            raise RequestError(
                "The reply can neither go on nor end: its grammar is complete, and min_tokens or "
                "ignore_eos forbid every token that could end it.",
                code="invalid_grammar",
            )

    def _lost(self) -> RequestError:
        assert self.matcher is not None
        return RequestError(
            f"The reply cannot be held to its schema or grammar: {error_of(self.matcher)}",
            code="invalid_grammar",
        )

    def check_integrity(self, tokens: Sequence[int]) -> None:
        if self._taken > len(tokens):
            raise IntegrityError(f"a constraint at token {self._taken} of {len(tokens)}")


def _places(tokens: Sequence[int] | frozenset[int]) -> Iterator[tuple[int, np.uint32]]:
    for token in tokens:
        yield token // 32, np.uint32(1 << token % 32)


def _set(words: np.ndarray, tokens: Sequence[int] | frozenset[int]) -> None:
    for at, bit in _places(tokens):
        words[at] |= bit


def _clear(words: np.ndarray, tokens: Sequence[int] | frozenset[int]) -> None:
    for at, bit in _places(tokens):
        words[at] &= ~bit


def too_slow() -> RequestError:
    return RequestError(
        "The schema or grammar of the reply is too complex: following it takes too long.",
        code="invalid_grammar",
    )


Failures = list[tuple[int, Exception]]


class Masker:
    """Owned by one engine."""

    def __init__(self, vocab: int, known: int, ends: frozenset[int]):
        """known: tokens that the tokenizer has, which may be more than the model's."""
        self._ends = sorted(end for end in ends if end < vocab)
        self._width = -(-vocab // 32)
        bits = np.arange(-(-max(vocab, known) // 32) * 32) < vocab
        self._valid = np.packbits(bits, bitorder="little").view(np.uint32)
        self._executor: LLExecutor | None = None

    def make(self, constraints: Sequence[ConstrainedRow | None]) -> tuple[Masks | None, Failures]:
        """For a batch whose tokens have all been read; None: the row is free.

        A row that fails is named with its error, and has no mask.
        """
        held = [
            (at, constraint) for at, constraint in enumerate(constraints) if constraint is not None
        ]
        if not held:
            return None, []
        words = np.full((len(held) + 1, len(self._valid)), 0xFFFFFFFF, np.uint32)
        done = self._together([constraint for _, constraint in held], words)
        slots, failed = [len(held)] * len(constraints), Failures()
        for slot, (at, row) in enumerate(held):
            try:
                if row not in done:
                    row.measure(words[slot])
                words[slot] &= self._valid
                row.allow(words[slot], self._ends)
                slots[at] = slot
            except Exception as error:  # a matcher's fault is its row's
                failed.append((at, error))
        sent = mx.array(words[:, : self._width])
        return Masks(mx.array(slots, dtype=mx.int32), sent), failed

    def _together(self, rows: list[ConstrainedRow], words: np.ndarray) -> list[ConstrainedRow]:
        """The masks that take long enough to be worth threads; returns whose these are."""
        expensive = [(row, row.matcher, slot) for slot, row in enumerate(rows) if row.expensive]
        if len(expensive) < 2:
            return []
        if self._executor is None:
            self._executor = LLExecutor(_THREADS)
        start = time.perf_counter()
        self._executor.unsafe_compute_mask_ptr(
            [(matcher, slot) for _, matcher, slot in expensive if matcher is not None],
            words.ctypes.data,
            words.strides[0],
            len(words),
        )
        each = (time.perf_counter() - start) * min(_THREADS, len(expensive)) / len(expensive)
        for row, _, _ in expensive:
            row.cost = each
        return [row for row, _, _ in expensive]
