"""Log-probabilities as the completions API lists them."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bushel.core import TokenLogprob
from bushel.server.api.logprobs import finite

if TYPE_CHECKING:
    from bushel.text.vocabulary import Vocabulary


class LegacyLogprobs:
    """The completions API's four parallel lists, one choice of a reply at a time.

    Offsets count the characters of the reply's text, that of an echoed prompt included. echoed:
    that prompt's text. shows_special: special tokens are part of what the model says.
    """

    def __init__(self, vocabulary: Vocabulary, echoed: str = "", *, shows_special: bool = False):
        self._vocabulary = vocabulary
        self._echoed = echoed
        self._shows_special = shows_special
        self._offset = 0
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")

    def prompt(
        self, ids: Sequence[int], logprobs: Sequence[TokenLogprob | None]
    ) -> dict[str, list[Any]]:
        """Some of an echoed prompt; its first token has nothing to be predicted from."""
        return self._lists(zip(ids, logprobs, strict=True), self._is_echoed)

    def reply(self, logprobs: Sequence[TokenLogprob]) -> dict[str, list[Any]]:
        tokens = ((logprob.token_id, logprob) for logprob in logprobs)
        return self._lists(tokens, lambda token: self._shows_special)

    def _is_echoed(self, token: int) -> bool:
        """Whether a special token stands in the text, and was not added by the tokenizer."""
        return self._echoed.startswith(self._vocabulary.text(token), self._offset)

    def _lists(
        self, tokens: Iterable[tuple[int, TokenLogprob | None]], shows: Callable[[int], bool]
    ) -> dict[str, list[Any]]:
        lists: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for token, predicted in tokens:
            lists["tokens"].append(self._name(token))
            lists["token_logprobs"].append(None if predicted is None else finite(predicted.logprob))
            lists["top_logprobs"].append(None if predicted is None else self._top(predicted))
            lists["text_offset"].append(self._offset)
            if not self._vocabulary.hidden(token) or shows(token):
                self._offset += len(self._characters.decode(self._vocabulary.bytes(token)))
        return lists

    def _top(self, predicted: TokenLogprob) -> dict[str, float]:
        """The likeliest, and the token itself in any case."""
        top = {self._name(token): finite(logprob) for token, logprob in predicted.top}
        top.setdefault(self._name(predicted.token_id), finite(predicted.logprob))
        return top

    def _name(self, token: int) -> str:
        """A token's text; one that is half a character by its bytes, as OpenAI's API writes it.

        As texts they would all be the same, and overwrite each other as keys.
        """
        try:
            return self._vocabulary.bytes(token).decode()
        except UnicodeDecodeError as error:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in error.object)
