"""What is found out about a tokenizer and its chat template by trying them."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from threading import Lock

from llguidance import LLTokenizer

from bushel.core import ReplyFormat, RequestError
from bushel.core.options import ChatOptions
from bushel.text.grammar_tokens import read_grammar_tokens
from bushel.text.template_abilities import Abilities
from bushel.text.template_probe import TemplateProbe, thinks_by_itself, written_call
from bushel.text.tokenizer import Tokenizer


class TokenizerProfile:
    """Made at load and owned by its model's `Preparer`.

    Each thing is found when it is first asked for, and kept. A server asks for them before the
    first request would have to wait. vocab: tokens that the model knows.
    """

    def __init__(self, tokenizer: Tokenizer, vocab: int):
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._building = Lock()
        self._grammar_tokens: LLTokenizer | None = None
        self._holding: dict[str, frozenset[int]] = {}
        # Kept for `chat.reply.format_detection`, which knows the formats.
        self.reply_formats: dict[ChatOptions, ReplyFormat] = {}

    @cached_property
    def abilities(self) -> Abilities:
        """What the template can take, by a few dozen renderings."""
        with self._tokenizer.trial():
            return TemplateProbe(self._tokenizer).find()

    @cached_property
    def written_call(self) -> str:
        """A conversation with a call, as the template writes it; empty if it writes none."""
        with self._tokenizer.trial():
            return written_call(self._tokenizer)

    @cached_property
    def thinks_by_default(self) -> bool:
        """Whether the model begins to think where nobody tells it to."""
        return thinks_by_itself(self._tokenizer, self.abilities.switch)

    @property
    def grammar_tokens(self) -> LLTokenizer:
        """For grammars; threads that compile them may ask at once.

        RequestError if this tokenizer's tokens cannot be told.
        """
        with self._building:
            if self._grammar_tokens is None:
                self._grammar_tokens = read_grammar_tokens(self._tokenizer, self._vocab)
            return self._grammar_tokens

    def tokens_with(self, character: str) -> frozenset[int]:
        """Tokens whose text has this ASCII character. RequestError if they cannot be told."""
        if character not in self._holding:
            byte, texts = character.encode(), self._texts
            holding = frozenset(token for token, text in enumerate(texts) if byte in text)
            self._holding[character] = holding
        return self._holding[character]

    @cached_property
    def _texts(self) -> list[bytes]:
        """Of every token; control tokens have none."""
        tokens, controls = self.grammar_tokens, frozenset(self._tokenizer.controls.values())
        return [
            b"" if token in controls else tokens.decode_bytes([token])
            for token in range(self._vocab)
        ]

    def warm_grammars(self) -> None:
        """Make what the first grammar would have to wait for, and everybody with it."""
        with suppress(RequestError):  # it is said to whoever asks for a grammar
            _ = self.grammar_tokens
