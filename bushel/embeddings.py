"""What `embed` and `score` are called with, and what they return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bushel.core import Output, RequestError, SamplingParams
from bushel.core.embedding import unit

ONE = SamplingParams(max_tokens=1)  # no reply is written
Embeddable = str | Sequence[int]  # a text, or its token ids


def embedding_requests(texts: Embeddable | Iterable[Embeddable]) -> list[dict[str, Any]]:
    """One for each text or list of token ids. RequestError where they are something else."""
    if isinstance(texts, str):
        return [{"prompt": texts, "field": "texts"}]
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping):
        raise RequestError(
            f"Give a text or a list of them, not {type(texts).__name__}.", param="texts"
        )
    listed: list[Any] = list(texts)
    if listed and all(type(item) is int for item in listed):
        listed = [listed]
    return [
        {"prompt" if isinstance(item, str) else "prompt_token_ids": item, "field": "texts"}
        for item in listed
    ]


def texts_of(documents: Any) -> list[str]:
    listed = None if isinstance(documents, str | bytes | Mapping) else documents
    if not isinstance(listed, Iterable):
        raise RequestError("documents must be a list of strings.", param="documents")
    texts = list(listed)
    if not all(isinstance(text, str) for text in texts):
        raise RequestError("documents must be a list of strings.", param="documents")
    return texts


def numbers_of(outputs: Iterable[Output]) -> list[tuple[float, ...]]:
    """RequestError names the first text that could not be served."""
    numbers = []
    for at, output in enumerate(outputs):
        if output.error is not None:
            raise RequestError(f"Text {at}: {output.error}", param="texts")
        numbers.append(output.choices[0].embedding)
    return numbers


def vectors_of(outputs: Iterable[Output], dimensions: int | None) -> list[list[float]]:
    return [unit(values, dimensions) for values in numbers_of(outputs)]
