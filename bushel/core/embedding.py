"""Plain arithmetic on embeddings and scores, for whoever hands them out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bushel.core.errors import RequestError


def unit(values: Sequence[float], dimensions: int | None = None) -> list[float]:
    """Of length one; the first `dimensions`, if given. RequestError if there are fewer."""
    if dimensions is not None:
        good = type(dimensions) is int and 1 <= dimensions <= len(values)
        if not good:
            raise RequestError(
                f"dimensions must be from 1 to {len(values)}, which this model has.",
                param="dimensions",
            )
        values = values[:dimensions]
    length = math.hypot(*values) or 1.0
    return [value / length for value in values]


def cosine(one: Sequence[float], two: Sequence[float]) -> float:
    """Of vectors of length one."""
    return max(-1.0, min(1.0, math.fsum(map(float.__mul__, one, two))))


def sigmoid(logit: float) -> float:
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    grown = math.exp(logit)  # which the other form could not hold
    return grown / (1 + grown)
