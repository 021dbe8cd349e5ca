"""Where the last tokens of a text were said before, and what came next there.

    text     … a b c d x y … … … … a b c d        the last four were said before
                       ^ at                       length: how many tokens before it agree

N-grams of two lengths are looked up, the longer first; how far a place agrees is then counted. A
place is followed as long as what is said is what stands there, so that a copied passage costs one
comparison per token.

The text that is there from the start is sorted (24 bytes a token); what is added is kept in
dictionaries (some 300 bytes a token).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bushel.core import IntegrityError

# A token that is never said: what stands for an image, or parts two texts. Nothing matches it.
NOT_SAID = -1
# Two tokens find a passage again soon after a change in it; four tell passages apart that begin
# alike, as lines of code do.
NGRAMS = (4, 2)
# Of places where the same n-gram stands, the newest ones are compared.
_PLACES = 4
LONGEST = 32  # tokens; that more of them agree makes no difference
_FACTOR = 0x9E3779B97F4A7C15  # odd, so that every token of an n-gram changes its key
_MASK = (1 << 64) - 1


class Match(NamedTuple):
    at: int  # index of what came next
    length: int  # tokens before it that are the text's last ones; at most LONGEST


class NgramIndex:
    """`match` is where the text's last tokens were said before, if they were."""

    def __init__(self, text: Sequence[int]) -> None:
        self.tokens = list(text)
        self.match: Match | None = None
        array = np.array(self.tokens, np.int64).view(np.uint64)
        self._begun = [_Places(array, size) for size in NGRAMS]
        self._added: list[dict[int, int]] = [{} for _ in NGRAMS]  # the newest place of each
        self._find()

    def add(self, token: int) -> None:
        end = len(self.tokens)
        for size, places in zip(NGRAMS, self._added, strict=True):
            if end >= size:
                places[_key(self.tokens[end - size :])] = end
        followed = None
        if self.match is not None and self.tokens[self.match.at] == token:
            followed = Match(self.match.at + 1, min(LONGEST, self.match.length + 1))
        self.tokens.append(token)
        self.match = followed
        if followed is None or followed.length < NGRAMS[0]:
            self._find()

    def draft(self, count: int) -> list[int]:
        """What follows if the text goes on as it did; a passage may run on into its own copy."""
        drafted: list[int] = []
        if self.match is None:
            return drafted
        end = len(self.tokens)
        for at in range(self.match.at, self.match.at + count):
            token = self.tokens[at] if at < end else drafted[at - end]
            if token == NOT_SAID:
                break
            drafted.append(token)
        return drafted

    def _find(self) -> None:
        """A longer match than the one that is followed, if there is one."""
        for size, begun, added in zip(NGRAMS, self._begun, self._added, strict=True):
            if self.match is not None and self.match.length >= size:
                return
            if len(self.tokens) < size:
                continue
            key = _key(self.tokens[-size:])
            places = (Match(at, self._agree(at)) for at in _newest(key, added, begun))
            # The first of several as long: what was said last.
            best = max(places, key=lambda place: place.length, default=None)
            if best is not None and best.length >= size:
                self.match = best
                return

    def _agree(self, at: int) -> int:
        """How many tokens before it are the text's last ones."""
        tokens, end = self.tokens, len(self.tokens)
        length = 0
        while length < min(LONGEST, at):
            token = tokens[at - 1 - length]
            if token != tokens[end - 1 - length] or token == NOT_SAID:
                break
            length += 1
        return length

    def check_integrity(self) -> None:
        if self.match is not None and not 0 <= self.match.at < len(self.tokens):
            raise IntegrityError(f"a match at {self.match.at} of {len(self.tokens)} tokens")


class _Places:
    """Where the n-grams of a text stand, but for its last one, which nothing follows."""

    def __init__(self, text: np.ndarray, size: int) -> None:
        count = max(0, len(text) - size)
        keys = np.zeros(count, np.uint64)
        for at in range(size):
            keys = keys * np.uint64(_FACTOR) + text[at : at + count]
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._after = (order + size).astype(np.int32)

    def newest(self, key: int) -> list[int]:
        wanted = np.uint64(key)
        first = int(self._keys.searchsorted(wanted, "left"))
        last = int(self._keys.searchsorted(wanted, "right"))
        return self._after[max(first, last - _PLACES) : last][::-1].tolist()


def _newest(key: int, added: dict[int, int], begun: _Places) -> Iterator[int]:
    if key in added:
        yield added[key]
    yield from begun.newest(key)


def _key(ngram: Sequence[int]) -> int:
    key = 0
    for token in ngram:
        key = key * _FACTOR + token & _MASK
    return key
