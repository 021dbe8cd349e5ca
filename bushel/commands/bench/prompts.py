"""Prompts of so many tokens that share nothing, unless they should."""

from __future__ import annotations

import random
from collections.abc import Callable

# Short and common, so that most tokenizers have one token for each.
_WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part", "place",
    "case", "week", "company", "system", "program", "question", "work", "number", "night", "point",
    "home", "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right",
    "study", "book", "eye", "job", "word", "business", "issue", "side", "kind", "head", "house",
    "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law",
)  # fmt: skip
# Of these, one that adds a token each time: which, depends on the tokenizer.
_FILLERS = (" a", ".", "1", "!", ",;", "\n", " .", "x")
_FEW = 8  # tokens that are filled up one by one
_TRIES = 8  # counts of one prompt at most
_SAMPLE = 64  # words that show how many tokens one has


class PromptMaker:
    """count: tokens of a prompt as the server sees it, template included. exact: counting is
    cheap enough for every prompt; otherwise the first one of a length stands for the others.
    shared: tokens at the beginning of all prompts, about.
    """

    def __init__(
        self, count: Callable[[str], int], *, exact: bool = True, seed: int = 0, shared: int = 0
    ):
        self._count, self._exact = count, exact
        self._random = random.Random(seed)
        self._shared: list[str] = []
        self._lengths: dict[int, tuple[int, int]] = {}  # words and fillers of a length
        words = self._words(_SAMPLE)
        least, most = count(words[0]), count(" ".join(words))
        self._per_word = max(0.25, (most - least) / (_SAMPLE - 1))
        self._beside = least - self._per_word  # what the template takes
        self._filler = self._one_token(" ".join(words[:4])) if exact else _FILLERS[0]
        if shared:
            words = self._words(shared)
            self._shared = words[: max(1, round(shared / self._per_word))]
            self._beside += len(self._shared) * self._per_word

    def make(self, tokens: int) -> str:
        words = self._words(tokens)
        if not self._exact and tokens in self._lengths:
            count, fill = self._lengths[tokens]
        else:
            count, fill = self._lengths[tokens] = self._measured(tokens, words)
        return self._text(words[:count], fill)

    def _words(self, count: int) -> list[str]:
        return self._random.choices(_WORDS, k=max(1, count))

    def _text(self, words: list[str], fill: int) -> str:
        return " ".join((*self._shared, *words)) + self._filler * fill

    def _one_token(self, text: str) -> str:
        """A piece of text of which each adds one token."""
        base = self._count(text)
        for piece in _FILLERS:
            if all(self._count(text + piece * count) == base + count for count in (1, 2, _FEW)):
                return piece
        return _FILLERS[0]

    def _measured(self, tokens: int, words: list[str]) -> tuple[int, int]:
        """How many of these words, and how many fillers, come to so many tokens. At least one
        word stays, whatever the template takes.
        """
        count, fill = self._fitting((tokens - self._beside) / self._per_word, words), 0
        for _ in range(_TRIES):
            missing = tokens - self._count(self._text(words[:count], fill))
            if not missing or (missing < 0 and count == 1 and not fill):
                break
            if missing < 0 and fill:
                fill = max(0, fill + missing)
            elif missing < 0:
                count = self._fitting(count - max(1, -missing / self._per_word), words)
            else:
                more = self._fitting(count + (missing - _FEW / 2) / self._per_word, words)
                if missing <= _FEW or more == count:
                    fill += missing
                else:
                    count = more
        return count, fill

    @staticmethod
    def _fitting(count: float, words: list[str]) -> int:
        return max(1, min(len(words), int(count)))
