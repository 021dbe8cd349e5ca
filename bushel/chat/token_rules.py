"""From texts in a request's sampling to token ids: bad words, and DRY's sequence breakers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bushel.core import RequestError
from bushel.core.params import TokenRules
from bushel.models import Preparer

_BREAKERS = "dry_sequence_breakers"


def token_rules_of(host: Preparer, request: Mapping[str, Any]) -> TokenRules:
    """RequestError names what cannot be told by tokens."""
    words, breakers = request.get("bad_words") or (), request.get(_BREAKERS) or ()
    return TokenRules(_banned(host, words), _breaking(host, breakers))


def _banned(host: Preparer, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Each word as the tokenizer writes it, at the beginning of a text and behind another word."""
    spelled = [text for word in words for text in (word, f" {word.lstrip()}")]
    ids = [tuple(host.tokenizer.encode(text, add_special_tokens=False)) for text in spelled]
    return tuple(dict.fromkeys(word for word in ids if word))


def _breaking(host: Preparer, breakers: Sequence[str]) -> tuple[int, ...]:
    """All tokens that hold one of them.

    A control token is one, and an ASCII character is always inside of one. Whatever is longer may
    be spread over tokens in many ways.
    """
    found: set[int] = set()
    for at, breaker in enumerate(breakers):
        if breaker in host.tokenizer.controls:
            found.add(host.tokenizer.controls[breaker])
        elif len(breaker) == 1 and breaker.isascii():
            found.update(_holding(host, breaker))
        else:
            raise RequestError(
                f"{_BREAKERS}[{at}] must be one ASCII character or a special token of the model: "
                "whether a reply has come to anything else cannot be told token by token.",
                param=_BREAKERS,
            )
    return tuple(sorted(token for token in found if token < host.vocab))


def _holding(host: Preparer, character: str) -> frozenset[int]:
    try:
        return host.profile.tokens_with(character)
    except RequestError as error:
        raise RequestError(
            f"{_BREAKERS} must be empty: the texts of this model's tokens are not known.",
            param=_BREAKERS,
        ) from error
