"""Embeddings as OpenAI's API lists them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from bushel.core.embedding import unit
from bushel.server.api.errors import InvalidField
from bushel.server.errors import ApiError

# Of a number in a reply: float32 has as many behind the point, for one below one.
_DIGITS = 9
# Of a reply: 2,048 vectors of 4,096 numbers in base64, and half as many as lists.
_MOST_BYTES = 64 << 20


class EmbeddingWriter:
    """Encodes each as it comes: all at once would keep everyone waiting."""

    def __init__(self, model: str, count: int, dimensions: int | None, *, as_base64: bool):
        self._model = model
        self._dimensions = dimensions
        self._as_base64 = as_base64
        self._vectors: list[msgspec.Raw] = [msgspec.Raw()] * count
        self._bytes = 0

    def take(self, index: int, values: Sequence[float]) -> None:
        if self._dimensions is not None and self._dimensions > len(values):
            raise InvalidField("dimensions", f"must be at most {len(values)} with this model")
        vector: Any = unit(values, self._dimensions)
        if self._as_base64:
            vector = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        else:
            vector = [round(value, _DIGITS) for value in vector]
        encoded = msgspec.json.encode(vector)
        self._bytes += len(encoded)
        if self._bytes > _MOST_BYTES:
            raise ApiError(
                400,
                f"The reply is larger than {_MOST_BYTES} bytes. Ask for fewer texts or dimensions, "
                "or for base64.",
                code="reply_too_large",
                param="input",
            )
        self._vectors[index] = msgspec.Raw(encoded)

    def whole(self, id: str, created: int, prompt_tokens: int) -> bytes:
        data = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(self._vectors)
        ]
        usage = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens}
        return msgspec.json.encode(
            {"object": "list", "data": data, "model": self._model, "usage": usage}
        )
