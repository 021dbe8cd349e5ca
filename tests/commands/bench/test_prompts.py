"""Prompts of `bushel bench`: as many tokens as were asked for, and nothing in common."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.commands.bench.prompts import PromptMaker

# Tokens of a text: a word each, a letter each, pieces of three letters; and a template of ten.
TOKENIZERS: dict[str, Callable[[str], int]] = {
    "words": lambda text: 10 + len(text.replace(".", " .").split()),
    "letters": lambda text: 10 + len(text),
    "pieces": lambda text: 10 + sum(-(-len(word) // 3) for word in text.split(" ")),
}


@pytest.mark.parametrize("name", ["words", "letters"])
@given(tokens=st.integers(32, 600), seed=st.integers(0, 1000))
def test_a_prompt_has_exactly_as_many_tokens(name: str, tokens: int, seed: int) -> None:
    count = TOKENIZERS[name]
    maker = PromptMaker(count, seed=seed)
    assert [count(maker.make(tokens)) for _ in range(3)] == [tokens] * 3


@pytest.mark.parametrize("name", TOKENIZERS)
def test_no_two_prompts_begin_alike_and_counting_ends(name: str) -> None:
    calls = []

    def count(text: str) -> int:
        calls.append(text)
        return TOKENIZERS[name](text)

    maker = PromptMaker(count, seed=7)
    before = len(calls)
    prompts = [maker.make(200) for _ in range(20)]
    assert len(calls) - before <= 20 * 8
    assert len({prompt[:24] for prompt in prompts}) == 20
    assert [PromptMaker(count, seed=8).make(200)] != prompts[:1]


def test_prompts_share_what_they_should() -> None:
    count = TOKENIZERS["words"]
    maker = PromptMaker(count, seed=1, shared=100)
    one, two = (maker.make(300).split() for _ in range(2))
    assert one[:100] == two[:100]
    assert one[100:110] != two[100:110]
    assert len(one) == len(two) == 290


def test_where_counting_costs_a_request_the_first_of_a_length_stands_for_others() -> None:
    calls = []

    def count(text: str) -> int:
        calls.append(text)
        return TOKENIZERS["words"](text)

    maker = PromptMaker(count, exact=False)
    maker.make(64)
    before = len(calls)
    assert {TOKENIZERS["words"](maker.make(64)) for _ in range(10)} == {64}
    assert len(calls) == before


def test_a_prompt_shorter_than_the_template_is_one_word() -> None:
    assert len(PromptMaker(TOKENIZERS["words"]).make(4).split()) == 1
