"""OpenAI's own Python SDK against `bushel serve`: every reply is the one `LLM` gives (B6).

Both run in float32; tokens and texts must be equal, log-probabilities within `asking.BOUND`.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import openai
import pytest

from tests.depth import one_in, rarely
from tests.drawings import see
from tests.llm.request_builders import image, text
from tests.server.compare_with_llm import (
    BOUND,
    FORMS,
    MODEL,
    WAYS,
    Caller,
    Heard,
    Reference,
    Said,
    assert_same,
    difference,
    user,
)

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "logprobs": True, "top_logprobs": 3}
# So hot that replies of two seeds, or with and without a setting, are never the same.
HOT: dict[str, Any] = {**GREEDY, "temperature": 5, "seed": 7, "ignore_eos": True}


SUM = user("What is 3 + 4?")
STORY = user("Tell me a story.")
SQUARE = image(see("square", "red"))
CIRCLE = image(see("circle", "blue", size=(150, 90)))
TURNS = [
    {"role": "system", "content": "The codeword is marmalade."},
    {"role": "user", "content": "My name is Ada."},
    {"role": "assistant", "content": "Good morning, Ada."},
    {"role": "user", "content": "What is the codeword?"},
]
CHATS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "text": (SUM, GREEDY),
    "turns": (TURNS, GREEDY),
    "image": (user(SQUARE, text("What colour is it?")), GREEDY),
    "two images": (user(text("Which picture"), SQUARE, CIRCLE, text("shows a circle?")), GREEDY),
    "image in an earlier turn": (
        [
            *user(SQUARE, text("What colour is it?")),
            {"role": "assistant", "content": "It is red."},
            *user("Which shape is this?"),
        ],
        GREEDY,
    ),
    "three choices": (STORY, {**HOT, "n": 3}),
    "three choices about an image": (user(SQUARE, text("Describe it.")), {**HOT, "n": 3}),
    "stop": (SUM, {**GREEDY, "stop": ["="]}),
}
HARD = "three choices about an image"
TEXTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "text": ("The capital of France", {}),
    "texts": (["The capital of France", "Once", "3 + 4 ="], {}),
    "token ids": ([333, 233, 678, 233], {}),
    "lists of token ids": ([[333, 233, 678, 233], [939, 384], [31, 897, 32]], {}),
    "two choices each": (["Once", "It is a"], {"n": 2, "temperature": 5, "seed": 3}),
}


# -- replies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "way"),
    one_in(3, rarely(product(CHATS, WAYS), lambda it: it[1] not in FORMS and it[0] != HARD)),
)
def test_a_chat_is_what_the_model_says(
    caller: Caller, reference: Reference, case: str, way: str
) -> None:
    messages, fields = CHATS[case]
    assert_same(caller.chat(messages, way, **fields), reference.chat(messages, **fields))


@pytest.mark.parametrize(
    ("case", "way"), one_in(3, rarely(product(TEXTS, WAYS), lambda it: it[1] not in FORMS))
)
def test_a_completion_is_what_the_model_says(
    caller: Caller, reference: Reference, case: str, way: str
) -> None:
    prompt, more = TEXTS[case]
    fields = {"temperature": 0, "max_tokens": 12, "logprobs": 2, **more}
    one = isinstance(prompt, str) or isinstance(prompt[0], int)
    each = [reference.text(it, **fields) for it in ([prompt] if one else prompt)]
    choices = [choice for it in each for choice in it.choices]
    usage = sum(it.usage[0] for it in each), sum(it.usage[1] for it in each)
    assert_same(caller.complete(prompt, way, **fields), Heard(choices, usage))


def test_control_another_request_gets_another_reply(caller: Caller, reference: Reference) -> None:
    """What makes two replies equal above is not that all are."""
    seen = [caller.chat(user(it, text("What is it?")), **GREEDY) for it in (SQUARE, CIRCLE)]
    assert seen[0].choices[0].text != seen[1].choices[0].text
    messages, fields = CHATS["three choices"]
    three = caller.chat(messages, **fields)
    assert len({said.text for said in three.choices}) == 3
    one, two = (reference.chat(SUM, **GREEDY).choices[0] for _ in range(2))
    two.logprobs[0][0] += 2 * BOUND
    assert difference(one, two) > BOUND


def test_a_plain_picture_is_seen(caller: Caller) -> None:
    """A sanity check of the whole way: data URL, worker, engine, reply."""
    assert "red" in caller.chat(user(SQUARE, text("What colour is it?")), temperature=0).text


@pytest.mark.parametrize("way", WAYS)
def test_a_request_of_nothing_but_messages_is_answered(
    caller: Caller, reference: Reference, way: str
) -> None:
    """The model's own defaults apply, and no log-probabilities come unasked. B31."""
    got = caller.chat(SUM, way)
    assert got.choices[0].tokens == []
    assert_same(got, reference.chat(SUM))


# -- settings -----------------------------------------------------------------------------------

SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "temperature": (GREEDY, {"temperature": 5.0, "seed": 1}),
    "seed": (HOT, {"seed": 10}),
    "top_p": (HOT, {"top_p": 1e-6}),
    "top_k": (HOT, {"top_k": 1}),
    "min_p": (HOT, {"min_p": 1.0}),
    "repetition_penalty": ({**GREEDY, "ignore_eos": True}, {"repetition_penalty": 100.0}),
    "presence_penalty": ({**GREEDY, "ignore_eos": True}, {"presence_penalty": 100.0}),
    "frequency_penalty": ({**GREEDY, "ignore_eos": True}, {"frequency_penalty": 100.0}),
    "logit_bias": (GREEDY, {"logit_bias": {"333": 1000}}),
    "min_tokens": (GREEDY, {"min_tokens": 12}),
    "ignore_eos": (GREEDY, {"ignore_eos": True}),
    "max_tokens": (GREEDY, {"max_tokens": 3}),
    "max_completion_tokens": (GREEDY, {"max_completion_tokens": 3}),
    "stop": (GREEDY, {"stop": "3"}),
    "stop_token_ids": (GREEDY, {"stop_token_ids": [897]}),
}


@pytest.mark.parametrize("name", one_in(2, SETTINGS))
def test_a_setting_does_what_it_does_in_the_model(
    caller: Caller, reference: Reference, name: str
) -> None:
    before, setting = SETTINGS[name]
    fields = {**before, **setting}
    if name == "stop_token_ids":
        setting = fields = {**before, name: [reference.output({"messages": SUM}).token_ids[1]]}
    if "max_completion_tokens" in fields:
        del fields["max_tokens"]
    expected = reference.chat(SUM, **fields)
    assert_same(caller.chat(SUM, **fields), expected)
    without = reference.chat(SUM, **before).choices[0]
    assert without.tokens != expected.choices[0].tokens, "the setting changes nothing here"


def test_a_seed_gives_the_same_reply_alone_and_in_company(
    caller: Caller, reference: Reference
) -> None:
    alone = reference.chat(STORY, **HOT)
    seeds = (7, 8, 7, 9, 10, 7)
    found = caller.together(
        *(caller.chat_later(STORY, **{**HOT, "seed": seed}) for seed in seeds),
        caller.chat_later(TURNS, "async streamed", **GREEDY),
        caller.chat_later(SUM, **HOT),
    )[: len(seeds)]
    for at in (0, 2, 5):
        assert_same(found[at], alone)
    assert len({it.text for it in found}) == 4


# -- prompts with their log-probabilities --------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_prompts_are_echoed_with_their_logprobs(
    caller: Caller, reference: Reference, way: str
) -> None:
    """As lm-eval scores texts: lists of token ids, one token more, the best at each place."""
    prompts = [reference.encode(it) for it in ("The capital of France is Paris.", "3 + 4 = 7")]
    fields = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234}
    got = caller.complete(prompts, way, echo=True, **fields)
    for said, ids in zip(got.choices, prompts, strict=True):
        output = reference.output({"prompt_token_ids": ids}, **fields, prompt_logprobs=1)
        reply = reference.heard(output, own=True).choices[0]
        expected = Said(
            text=reference.tokenizer.decode(ids) + reply.text,
            tokens=[*map(reference.bytes, ids), *reply.tokens],
            logprobs=[*reference.prompt_rows(output), *reply.logprobs],
        )
        assert (said.tokens, said.text) == (expected.tokens, expected.text)
        assert said.logprobs[0] == []  # the first token has nothing to be predicted from
        assert said.finish == reply.finish
        assert difference(said, expected) < BOUND
    assert got.usage == (sum(map(len, prompts)), len(prompts))


def test_an_echoed_text_is_the_text_that_was_sent(caller: Caller) -> None:
    prompt = "Once there was"
    got = caller.complete(prompt, echo=True, max_tokens=0, logprobs=1, temperature=0)
    assert (got.text, got.usage[1], got.choices[0].finish) == (prompt, 0, "length")
    assert b"".join(got.choices[0].tokens).decode() == prompt


@pytest.mark.parametrize("prompt", ["The capital of", "日本 a 😀 b"])
def test_offsets_are_places_in_the_text(caller: Caller, prompt: str) -> None:
    """Of every token that is text by itself, also behind those that are not."""
    reply = caller.sdk.completions.create(
        model=MODEL, prompt=prompt, echo=True, logprobs=0, max_tokens=1
    )
    [choice] = reply.choices
    found = choice.logprobs
    assert found is not None
    pairs = zip(found.tokens or (), found.text_offset or (), strict=True)
    # An end token has a name, but no part in the text.
    shown = [(token, at) for token, at in pairs if not token.startswith(("<|", "bytes:"))]
    assert len(shown) > 3
    for token, at in shown:
        assert choice.text[at : at + len(token)] == token


# -- models and errors -----------------------------------------------------------------------------


def test_the_model_is_listed_and_found(caller: Caller, reference: Reference) -> None:
    [listed] = caller.sdk.models.list().data
    assert listed.id == MODEL
    assert caller.sdk.models.retrieve(MODEL) == listed
    with pytest.raises(openai.NotFoundError) as raised:
        caller.sdk.models.retrieve("another")
    assert raised.value.code == "model_not_found"


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_is_not_found(caller: Caller, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        caller.create(model="another", messages=SUM, stream=stream)
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    assert "`another`" in str(raised.value)


WRONG: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": -1},
    "top_p": {"top_p": 2},
    "n": {"n": 0},
    "max_tokens": {"max_tokens": 0},
    "top_logprobs": {"logprobs": True, "top_logprobs": 1000},
    "stop": {"stop": [""]},
    "logit_bias": {"logit_bias": {"999999": 1}},
    "min_p": {"extra_body": {"min_p": "much"}},
    "tools": {"tools": [{"type": "function"}]},
    "tool_choice": {"tool_choice": "required"},
    "response_format": {"response_format": {"type": "xml"}},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_obeyed_is_refused_by_name(caller: Caller, name: str, stream: bool) -> None:
    """Before a stream begins, so that the SDK raises it where the request was made."""
    with pytest.raises(openai.BadRequestError) as raised:
        caller.create(model=MODEL, messages=SUM, stream=stream, **WRONG[name])
    param = raised.value.param
    assert param is not None
    assert param.split("[")[0].split(".")[0] == name
    assert name in raised.value.message
