"""What is far too long is refused before all of it has been tokenized."""

from __future__ import annotations

import random

import pytest

from bushel.chat import prompt_length
from bushel.chat.prompt_length import require_countable, require_room, tokens_at_least
from bushel.core import RequestError
from bushel.models import Preparer
from bushel.models.load import open_host

CONTEXT = 2048
UNITS = ("The cat sat on the mat. ", "a", " ", "\U0001f600", "<|im_start|>", "0123", "=-", "\n\t{}")


@pytest.fixture(scope="module")
def _host() -> Preparer:
    host = open_host("bushel:tiny", trust_remote_code=False)
    host.context = CONTEXT
    return host


@pytest.fixture
def host(_host: Preparer, monkeypatch: pytest.MonkeyPatch) -> Preparer:
    """Its context is short, and so are pieces."""
    monkeypatch.setattr(prompt_length, "_PIECE", 1 << 12)
    return _host


@pytest.fixture
def encoded(host: Preparer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of all that is tokenized."""
    lengths: list[int] = []
    encode = host.tokenizer.encode

    def counted(text: str, *, add_special_tokens: bool) -> list[int]:
        lengths.append(len(text))
        return encode(text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(host.tokenizer, "encode", counted)
    return lengths


def tokens(host: Preparer, text: str) -> int:
    return len(host.tokenizer.encode(text, add_special_tokens=False))


def test_what_fits_is_never_refused(host: Preparer) -> None:
    """However it is cut, and whatever it is made of."""
    rng = random.Random(1)
    refused = 0
    for _ in range(60):
        some = rng.choices(UNITS, k=rng.randint(1, 3))
        text = "".join(rng.choice(some) * rng.randint(1, 40) for _ in range(rng.randint(1, 300)))
        least = tokens_at_least(host, text, CONTEXT)
        if least:
            refused += 1
            assert CONTEXT < least <= tokens(host, text)
    assert refused > 10  # control


@pytest.mark.parametrize("unit", UNITS)
def test_of_a_text_that_is_far_too_long_little_is_tokenized(
    host: Preparer, encoded: list[int], unit: str
) -> None:
    """Where its characters alone do not tell, about as much as one context, or two. B67."""
    each = len(unit) / tokens(host, unit * 100) * 100
    for contexts, refuse in ((1, require_room), (2, require_countable)):
        encoded.clear()
        for length in (contexts * CONTEXT * host.tokenizer.longest, 10_000_000):
            with pytest.raises(RequestError, match=f"{contexts * CONTEXT} tokens") as raised:
                refuse(host, unit * (length // len(unit)), "prompt")
            assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "prompt")
        assert sum(encoded) < 1.5 * contexts * CONTEXT * each + (1 << 12)


def test_a_text_of_usual_length_is_tokenized_once(host: Preparer, encoded: list[int]) -> None:
    require_room(host, "a" * (2 * CONTEXT), "prompt")
    require_countable(host, "a" * (2 * CONTEXT), "prompt")
    assert encoded == []
