"""Log-probabilities of tokens, as chat completions and responses list them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bushel.core import TokenLogprob
from bushel.server.errors import reply_too_large

if TYPE_CHECKING:
    from bushel.text.vocabulary import Vocabulary

# JSON has no infinity; this is what OpenAI's API writes for a token that cannot come.
_LOWEST = -9999.0
_encode = msgspec.json.encode


def finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _LOWEST


def logprob_entries(
    vocabulary: Vocabulary, logprobs: Iterable[TokenLogprob]
) -> list[dict[str, Any]]:
    """One for each token, with the likeliest in its place."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        return {
            "token": vocabulary.text(token),
            "logprob": finite(logprob),
            "bytes": list(vocabulary.bytes(token)),
        }

    return [
        {
            **entry(chosen.token_id, chosen.logprob),
            "top_logprobs": [entry(token, logprob) for token, logprob in chosen.top],
        }
        for chosen in logprobs
    ]


class ReplyRoom:
    """Bytes that a reply may still grow by."""

    def __init__(self, most: int):
        self._most = self._left = most

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise reply_too_large(self._most)


class EncodedLogprobs:
    """Elements of a JSON list, encoded as they come: all at once would keep everyone waiting."""

    def __init__(self, room: ReplyRoom):
        self._room = room
        self._pieces: list[bytes] = []

    def add(self, elements: Sequence[Any]) -> None:
        if elements:
            piece = _encode(elements)[1:-1]
            self._room.take(len(piece) + 1)
            self._pieces.append(piece)

    def list(self) -> msgspec.Raw:
        return msgspec.Raw(b"[" + b",".join(self._pieces) + b"]")
