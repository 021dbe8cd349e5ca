"""Pairs of texts to scores: what a cross-encoder says of each, or how near their embeddings are.

cross-encoder   one job for each pair
any other       one job for each text; pairs of them are compared when all have come
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.embedding import cosine, sigmoid, unit

Pair = tuple[str, str]


class PairScores:
    """write: the reply, from the scores of all pairs. field: what errors call a second text."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        field: str,
        write: Callable[[list[float], str, int, int], bytes],
    ):
        self._pairs = pairs
        self._write = write
        self._field = field
        self._crossed = False
        self._texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        self._numbers: dict[int, array[float]] = {}  # by job

    def prompts(self, *, crossed: bool) -> list[dict[str, Any]]:
        """One for each job. crossed: the model is a cross-encoder."""
        self._crossed = crossed
        if not crossed:
            return [{"prompt": text, "field": self._field} for text in self._texts]
        return [{"prompt": one, "text_pair": two, "field": self._field} for one, two in self._pairs]

    def take(self, index: int, values: Sequence[float]) -> None:
        self._numbers[index] = array("d", values if self._crossed else unit(values))

    def whole(self, id: str, created: int, prompt_tokens: int) -> bytes:
        return self._write(self._scores(), id, created, prompt_tokens)

    def _scores(self) -> list[float]:
        if self._crossed:
            return [sigmoid(self._numbers[at][0]) for at in range(len(self._pairs))]
        vectors = {text: self._numbers[at] for at, text in enumerate(self._texts)}
        return [cosine(vectors[one], vectors[two]) for one, two in self._pairs]
