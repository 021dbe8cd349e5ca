"""Log-probabilities in the two forms that OpenAI's APIs have for them."""

from __future__ import annotations

import codecs
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


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _LOWEST


def chat_entries(vocabulary: Vocabulary, found: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
    """The entries of `choices[].logprobs.content`."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        return {
            "token": vocabulary.text(token),
            "logprob": _finite(logprob),
            "bytes": list(vocabulary.bytes(token)),
        }

    return [
        {
            **entry(it.token_id, it.logprob),
            "top_logprobs": [entry(token, logprob) for token, logprob in it.top],
        }
        for it in found
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


class LegacyLogprobs:
    """The completions API's four parallel lists, one choice of a reply at a time.

    Offsets count the characters of the reply's text, that of an echoed prompt included.
    """

    def __init__(self, vocabulary: Vocabulary):
        self._vocabulary = vocabulary
        self._offset = 0
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")

    def prompt(
        self, ids: Sequence[int], found: Sequence[TokenLogprob | None]
    ) -> dict[str, list[Any]]:
        """Some of an echoed prompt; its first token has nothing to be predicted from."""
        return self._lists(zip(ids, found, strict=True))

    def reply(self, found: Sequence[TokenLogprob]) -> dict[str, list[Any]]:
        return self._lists((it.token_id, it) for it in found)

    def _lists(self, tokens: Iterable[tuple[int, TokenLogprob | None]]) -> dict[str, list[Any]]:
        lists: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for token, found in tokens:
            text = self._name(token)
            lists["tokens"].append(text)
            lists["token_logprobs"].append(None if found is None else _finite(found.logprob))
            lists["top_logprobs"].append(None if found is None else self._top(found))
            lists["text_offset"].append(self._offset)
            if not self._vocabulary.hidden(token):
                self._offset += len(self._characters.decode(self._vocabulary.bytes(token)))
        return lists

    def _top(self, found: TokenLogprob) -> dict[str, float]:
        """The likeliest, and the token itself in any case."""
        top = {self._name(token): _finite(logprob) for token, logprob in found.top}
        top.setdefault(self._name(found.token_id), _finite(found.logprob))
        return top

    def _name(self, token: int) -> str:
        """A token's text; one that is half a character by its bytes, as OpenAI's API writes it.

        As texts they would all be the same, and overwrite each other as keys.
        """
        try:
            return self._vocabulary.bytes(token).decode()
        except UnicodeDecodeError as error:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in error.object)
