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

from bisect import bisect_right
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
_SQUARE = _FACTOR * _FACTOR & _MASK


class Match(NamedTuple):
    at: int  # index of what came next
    length: int  # tokens before it that are the text's last ones; at most LONGEST


class NgramIndex:
    """`match` is where the text's last tokens were said before, if they were."""

    def __init__(self, text: Sequence[int]) -> None:
        self.tokens = list(text)
        self.match: Match | None = None
        keys = _keys(np.array(self.tokens, np.int64).view(np.uint64))
        self._begun = [_Places(each, size) for each, size in zip(keys, NGRAMS, strict=True)]
        self._added: list[dict[int, int]] = [{} for _ in NGRAMS]  # the newest place of each
        self._last = self._pair = self._pair_before = 0  # what `_roll` goes on from
        self._last_keys = (0, 0)  # of the n-grams that the text ends with
        for token in self.tokens[-max(NGRAMS) :]:
            self._roll(token)
        self._find()

    def add(self, token: int) -> None:
        end = len(self.tokens)
        for size, key, places in zip(NGRAMS, self._last_keys, self._added, strict=True):
            if end >= size:
                places[key] = end
        match = self.match
        followed = None
        if match is not None and self.tokens[match.at] == token:
            followed = Match(match.at + 1, min(LONGEST, match.length + 1))
        self.tokens.append(token)
        self._roll(token)
        self.match = followed
        if followed is None or followed.length < NGRAMS[0]:
            self._find()

    def follow(self, at: int) -> None:
        """Take it that the text goes on from there, as if an n-gram had been found."""
        self.match = Match(at, NGRAMS[0])

    def _roll(self, token: int) -> None:
        """On to the keys of the n-grams that end with this token."""
        pair = self._last * _FACTOR + token & _MASK
        four = self._pair_before * _SQUARE + pair & _MASK
        self._last, self._pair_before, self._pair = token, self._pair, pair
        self._last_keys = (four, pair)

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
        keys = zip(NGRAMS, self._last_keys, self._begun, self._added, strict=True)
        for size, key, begun, added in keys:
            if self.match is not None and self.match.length >= size:
                return
            if len(self.tokens) < size:
                continue
            best = None
            for at in (*([added[key]] if key in added else ()), *begun.newest(key)):
                length = self._agree(at)
                # The first of several as long: what was said last.
                if length >= size and (best is None or length > best.length):
                    best = Match(at, length)
            if best is not None:
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
    """Where the n-grams of a text stand, by their keys; but its last one, which nothing follows."""

    def __init__(self, keys: np.ndarray, size: int) -> None:
        order = np.argsort(keys[:-1], kind="stable")
        self._keys = keys[order].data
        self._after = (order + size).astype(np.int32).data

    def newest(self, key: int) -> Iterator[int]:
        end = bisect_right(self._keys, key)
        for at in range(end - 1, max(-1, end - 1 - _PLACES), -1):
            if self._keys[at] != key:
                return
            yield self._after[at]


def _keys(text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of all n-grams of a text, four tokens and two; as `NgramIndex` rolls them."""
    pairs = text[:-1] * np.uint64(_FACTOR) + text[1:]
    return pairs[:-2] * np.uint64(_SQUARE) + pairs[2:], pairs
