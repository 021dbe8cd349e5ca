"""The last hidden states of prompts, for whoever begins with the same tokens and does not run them.

A prediction head attends to hidden states, and what is restored has none. They are kept under the
same budget as the tree, as they were run: a reply between two prompts is missing.

    kept, of a prompt     [0 ........ | h h h h]            the last of its tokens
    restored, later       [0 ........ | h h h h] reply [ ... to run ]
    of another that parts [0 ........ | h h] ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from bushel.cache.prefix.memory_budget import MemoryBudget
from bushel.cache.prefix.token_key import Key, agree

Span = tuple[int, mx.array]  # the first of some tokens, and their hidden states [1, n, D]

# Prompts: to find one, all are looked through, each in 50 us for 100,000 tokens that are the same.
_MOST = 32


@dataclass(eq=False)
class _End:
    root: str
    key: Key  # of all tokens up to there
    spans: tuple[Span, ...]  # in order

    @property
    def nbytes(self) -> int:
        return sum(hidden.nbytes for _, hidden in self.spans)


class PromptEnds:
    def __init__(self, budget: MemoryBudget):
        self._budget = budget
        self._ends: list[_End] = []
        self.used = False  # whether there was ever anything
        self._recency = budget.queue(self._drop)
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._ends)

    def put(self, root: str, key: Key, spans: Sequence[Span]) -> None:
        """Spans that share no buffer with anything else. They replace those of the same prompt."""
        if not spans:
            return
        for end in self._ends:
            if end.root == root and len(end.key) == len(key) == agree(end.key, key):
                self._drop(end)
                break
        new = _End(root, key, tuple(spans))
        while len(self._ends) >= _MOST and (oldest := self._recency.oldest()):
            self._drop(oldest[1])
        if not self._budget.make_room(new.nbytes, len(spans)):
            return
        self._budget.take(new.nbytes, len(spans))
        self.nbytes += new.nbytes
        self._ends.append(new)
        self.used = True
        self._recency.touch(new, self._budget.tick())

    def get(self, root: str, key: Key, most: int) -> list[Span]:
        """Of the first tokens of a prompt, at most so many, those nearest to their end."""
        best, nearest = None, 0
        for end in self._ends:
            shared = min(agree(end.key, key), most) if end.root == root else 0
            if shared > max(nearest, end.spans[0][0]):
                best, nearest = end, shared
        if best is None:
            return []
        self._recency.touch(best, self._budget.tick())
        return [
            (start, hidden[:, : nearest - start]) for start, hidden in best.spans if start < nearest
        ]

    def clear(self) -> None:
        for end in list(self._ends):
            self._drop(end)

    def _drop(self, end: _End) -> None:
        self._ends.remove(end)
        self._recency.remove(end)
        self.nbytes -= end.nbytes
        self._budget.give(end.nbytes, len(end.spans))
