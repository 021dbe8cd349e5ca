"""A server under names, a key and defaults of its own, and with a context that can be filled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.depth import often, one_in
from tests.server.compare_with_llm import FORMS, Caller, Reference, assert_same, user
from tests.server.conftest import KEY, SHORT
from tests.server.server_process import Server

SUM = user("What is 3 + 4?")
STORY = user("Tell me a story.")
SURE: dict[str, Any] = {
    "model": "small",
    "temperature": 0,
    "max_tokens": 8,
    "logprobs": True,
    "top_logprobs": 1,
}


@pytest.fixture(scope="module")
def keyed(short: Server) -> Iterator[Caller]:
    caller = Caller(short.url, KEY)
    yield caller
    caller.close()


# -- names and keys -------------------------------------------------------------------------------


def test_all_names_are_listed_and_no_other(keyed: Caller) -> None:
    assert [model.id for model in keyed.sdk.models.list()] == ["small", "house-model"]
    assert keyed.sdk.models.retrieve("house-model").id == "house-model"
    with pytest.raises(openai.NotFoundError):
        keyed.sdk.models.retrieve("bushel:tiny")


@pytest.mark.parametrize(
    ("asked", "named"),
    often(
        [("small", "small"), ("house-model", "house-model"), ("gpt-5-mini", "small")],
        ("gpt-5-mini", "small"),
    ),
)
def test_a_name_or_an_alias_is_answered(
    keyed: Caller, short_reference: Reference, asked: str, named: str
) -> None:
    reply = keyed.create(model=asked, messages=SUM, temperature=0)
    assert reply.model == named
    assert reply.choices[0].message.content == short_reference.chat(SUM, temperature=0).text
    with keyed.create(model=asked, messages=SUM, stream=True) as chunks:
        assert {chunk.model for chunk in chunks} == {named}


@pytest.mark.parametrize("name", ["claude", "my-gpt-5", "bushel:tiny"])
def test_any_other_name_is_not_found(keyed: Caller, name: str) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        keyed.create(model=name, messages=SUM)
    assert raised.value.code == "model_not_found"


@pytest.mark.parametrize("key", one_in(2, ["unused", KEY[:-1], KEY + "s"]))
def test_without_the_key_nothing_is_said(short: Server, key: str) -> None:
    stranger = Caller(short.url, key)
    try:
        with pytest.raises(openai.AuthenticationError) as raised:
            stranger.create(model="small", messages=SUM)
        assert KEY not in str(raised.value)
        with pytest.raises(openai.AuthenticationError):
            stranger.sdk.models.list()
        with pytest.raises(openai.AuthenticationError):
            stranger.run(stranger.later.models.retrieve("small"))
    finally:
        stranger.close()
    assert short.health() == 200


# -- defaults (B31) --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", FORMS)
def test_the_servers_defaults_hold_where_the_request_says_nothing(
    keyed: Caller, short_reference: Reference, way: str
) -> None:
    quiet = {"model": "small", "seed": 1, "max_tokens": 12, "logprobs": True, "top_logprobs": 1}
    expected = short_reference.chat(STORY, **quiet, temperature=3.0, top_p=0.9)
    assert_same(keyed.chat(STORY, way, **quiet), expected)
    said = {**quiet, "temperature": 0}
    assert_same(keyed.chat(STORY, way, **said), short_reference.chat(STORY, **said))
    assert expected.text != short_reference.chat(STORY, **said).text


# -- the context (B50) -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", FORMS)
def test_a_token_limit_beyond_the_context_is_clamped(
    keyed: Caller, short_reference: Reference, way: str
) -> None:
    """Agents ask for 32,000 tokens and more; the reply ends with the context instead."""
    fields = {**SURE, "max_tokens": 32_000, "ignore_eos": True}
    got = keyed.chat(STORY, way, **fields)
    assert_same(got, short_reference.chat(STORY, **fields))
    assert got.choices[0].finish == "length"
    assert sum(got.usage) == SHORT


@pytest.mark.parametrize("way", FORMS)
@pytest.mark.parametrize("extra", [0, 40])
def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(
    keyed: Caller, extra: int, way: str
) -> None:
    """Before a stream begins, in either API."""
    said = f"prompt has {SHORT + extra} tokens"
    with pytest.raises(openai.BadRequestError, match=said) as raised:
        keyed.complete([50] * (SHORT + extra), way, model="small")
    assert f"context length is {SHORT} tokens" in raised.value.message
    assert raised.value.code == "context_length_exceeded"


def test_a_prompt_beyond_the_context_is_named_as_the_request_names_it(keyed: Caller) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        keyed.complete("word " * SHORT, model="small")
    assert raised.value.param == "prompt"


@pytest.mark.parametrize("way", FORMS)
def test_a_chat_beyond_the_context_is_refused_with_both_numbers(
    keyed: Caller, short_reference: Reference, way: str
) -> None:
    long = user("word " * SHORT)
    [output] = short_reference.llm.generate([{"messages": long}])
    with pytest.raises(openai.BadRequestError) as raised:
        keyed.chat(long, way, model="small")
    assert raised.value.message.endswith(str(output.error))
    assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "messages")


def test_a_prompt_that_just_fits_is_answered(keyed: Caller, short_reference: Reference) -> None:
    fields = {**SURE, "logprobs": 1}
    del fields["top_logprobs"]
    got = keyed.complete([50] * (SHORT - 1), **fields)
    assert_same(got, short_reference.text([50] * (SHORT - 1), **fields))
    assert got.usage == (SHORT - 1, 1)
