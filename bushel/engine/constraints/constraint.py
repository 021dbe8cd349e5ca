"""What one constrained row may say next: a grammar, a budget for its thoughts, or both.

A mask is one bit for each token, in words of 32. Along a draft there is one for every place:

    columns    0        1          2             3
    masks      now    after d1   after d1 d2   after d1 d2 d3

They are worked out as if the draft had been said, and then the row goes back: only what it has
really said moves it on.

llguidance keeps a matcher's last mask, and gives it again at the same state of its lexer in the row
of its chart that has the same number. Going back cuts off rows and leaves the mask (1.9.1): another
row would get it. So, where a reply parts from a draft that had masks, one is made first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from llguidance import LLMatcher

from bushel.core import Decoding, IntegrityError, RequestError
from bushel.engine.constraints.thinking_budget import ThinkingProgress
from bushel.text.detokenizer import Decode
from bushel.text.grammar_compiler import error_of

# A mask takes 0.02 to 2 ms, and as long as two of the first sort to wake a thread for it.
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
        self._fresh = None if matcher is None else matcher.deep_copy()  # at the grammar's start
        self._goes_back: bool | None = None  # its matcher, once that is known; some cannot
        self._masked = 0  # tokens of the reply, and of a draft, that led to its matcher's last mask
        self._behind: list[int] = []  # of these, tokens that it has gone back from
        self._begin()

    def _begin(self) -> None:
        constraint = self.decoding.constraint
        budget = constraint.budget if constraint is not None else None
        thoughts = None if budget is None else ThinkingProgress(budget, self._decode, self.decoding)
        self._thoughts = thoughts
        self._taken: list[int] = []  # tokens of the reply
        self.forced = self._next_forced()  # the one token that may come next

    def holds(self, index: int) -> bool:
        """Whether it may matter at this place of the reply, as far as its tokens are known."""
        free = self._thoughts is None or self._thoughts.free(index)
        return self.matcher is not None or not free

    def take(self, token: int) -> None:
        """What it says next; RequestError if it cannot be followed."""
        if self._behind and self._behind.pop(0) != token:
            self._forget_mask()
        self._taken.append(token)
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
        if len(self._taken) > len(tokens):
            self._begin_again()
            self._begin()
        for token in tokens[len(self._taken) :]:
            self.take(token)

    def _begin_again(self) -> None:
        """With a matcher of which nothing has to go back."""
        self._behind = []
        if self._fresh is not None:
            self.matcher = self._fresh.deep_copy()

    def _consume(self, token: int) -> None:
        if self.matcher is None:
            return
        start = time.thread_time()
        if not self.matcher.consume_token(token):
            raise self._lost()
        self._charge(time.thread_time() - start)

    def _forget_mask(self) -> None:
        """Have the matcher make one where it is, which takes the place of the last."""
        self._behind = []
        if self.matcher is not None:
            start = time.thread_time()
            self.matcher.compute_bitmask()
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
        self._masked = len(self._taken)

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
        if len(self._taken) < row.min_tokens:
            _clear(words, row.banned_early)
        if not words.any():
            raise RequestError(
                "The reply can neither go on nor end: its grammar is complete, and min_tokens or "
                "ignore_eos forbid every token that could end it.",
                code="invalid_grammar",
            )

    def holds_along(self, draft: Sequence[int]) -> bool:
        """Whether it may matter after some of these tokens."""
        return self.holds(len(self._taken) + len(draft))

    def cut(self, draft: Sequence[int], ends: Sequence[int]) -> list[int]:
        """As much of a draft as the row may say and still go on. No masks are made for that."""
        draft = self._without_end(draft, ends)
        if not draft or not self.holds_along(draft):
            return draft
        with self._drafting():
            if self._thoughts is None:
                return draft[: self._valid(draft)]
            for at, token in enumerate(draft):
                allowed = self._valid([token]) if self.forced is None else token == self.forced
                if not allowed or not self._takes(token):
                    return draft[:at]
        return draft

    def _without_end(self, draft: Sequence[int], ends: Sequence[int]) -> list[int]:
        """Up to a token that ends the reply: nothing comes after it."""
        row, index = self.decoding, len(self._taken)
        stops = row.end_ids if self.matcher is None else row.end_ids.union(ends)
        for at, token in enumerate(draft):
            early = index + at < row.min_tokens and token in row.banned_early
            if early or token in stops:
                return list(draft[:at])
        return list(draft)

    def _valid(self, tokens: list[int]) -> int:
        """How many of these its grammar lets come next."""
        if self.matcher is None:
            return len(tokens)
        start = time.thread_time()
        valid: int = self.matcher.validate_tokens(tokens)
        self._charge(time.thread_time() - start)
        return valid

    def forced_ahead(self, limit: int) -> list[int]:
        """Tokens that can only come next, as far as they are known: a draft that costs nothing."""
        if self.forced is not None and self._thoughts is not None:
            return [*self._thoughts.forced[:limit]]
        return [] if self.matcher is None else self.matcher.compute_ff_tokens()[:limit]

    def allow_along(
        self, draft: Sequence[int], words: np.ndarray, valid: np.ndarray, ends: Sequence[int]
    ) -> list[int]:
        """Make words[j] what may come after j tokens of a draft; return as much as may be said.

        valid: the model's tokens, as a mask. What goes wrong later than at the first place is no
        fault of the row, which need not come there: the draft ends before it.
        """
        draft = self._without_end(draft, ends)
        with self._drafting():
            for at, mine in enumerate(words[: 1 + len(draft)]):
                try:
                    self.measure(mine)
                    mine &= valid
                    self.allow(mine, ends)
                except RequestError:
                    if at == 0:
                        raise
                    return draft[: at - 1]
                if at == len(draft) or not _has(mine, draft[at]) or not self._takes(draft[at]):
                    return draft[:at]
        return draft

    def _takes(self, token: int) -> bool:
        """Take a token of a draft, if it can be followed."""
        try:
            self.take(token)
        except RequestError:
            return False
        return True

    @contextmanager
    def _drafting(self) -> Iterator[None]:
        """What is taken inside is given back."""
        matcher, thoughts, forced, said = self.matcher, self._thoughts, self.forced, self._taken
        if matcher is not None:
            self._prepare(matcher)
        if self._behind:  # of a round that failed
            self._forget_mask()
        self._masked = len(said)
        self._taken = [*said]
        self._thoughts = None if thoughts is None else thoughts.copy()
        try:
            yield
        finally:
            back, behind = len(self._taken) - len(said), self._taken[len(said) : self._masked]
            self._thoughts, self.forced, self._taken = thoughts, forced, said
            copied, self.matcher = self.matcher is not matcher, matcher
            if matcher is not None and not copied:
                self._behind = behind
                if not matcher.rollback(back):
                    self._replace()

    def _prepare(self, matcher: LLMatcher) -> None:
        """Before a draft: a copy where its matcher cannot go back."""
        if self._goes_back is None:
            self._goes_back = matcher.deep_copy().reset()
        if not self._goes_back:
            self.matcher = matcher.deep_copy()

    def _replace(self) -> None:
        """A draft has led its matcher to where it does not come back from: another takes over."""
        self._begin_again()
        self._goes_back = False
        assert self.matcher is not None
        if not self.matcher.consume_tokens(self._taken):
            raise self._lost()

    def _lost(self) -> RequestError:
        assert self.matcher is not None
        return RequestError(
            f"The reply cannot be held to its schema or grammar: {error_of(self.matcher)}",
            code="invalid_grammar",
        )

    def check_integrity(self, tokens: Sequence[int]) -> None:
        if self._taken != list(tokens[: len(self._taken)]):
            raise IntegrityError(
                f"a constraint after {len(self._taken)} tokens that are not the reply's first"
            )


def _places(tokens: Sequence[int] | frozenset[int]) -> Iterator[tuple[int, np.uint32]]:
    for token in tokens:
        yield token // 32, np.uint32(1 << token % 32)


def _has(words: np.ndarray, token: int) -> bool:
    return bool(words[token // 32] >> np.uint32(token % 32) & 1)


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
