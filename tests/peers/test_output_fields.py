"""What a reply may be made of, and what is told of its tokens, as vLLM's clients ask."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.depth import one_in
from tests.peers.conftest import MODEL
from tests.server.server_process import Server

SUM: list[Any] = [{"role": "user", "content": "What is 3 + 4?"}]
ANSWER = "3 + 4 = 7"
TEXT = "The capital of France"


def chat(client: openai.OpenAI, messages: list[Any] = SUM, **fields: Any) -> Any:
    body = {"temperature": 0, **fields}
    return client.chat.completions.create(model=MODEL, messages=messages, extra_body=body)


def complete(client: openai.OpenAI, prompt: Any = TEXT, **fields: Any) -> Any:
    body = {"temperature": 0, "max_tokens": 8, **fields}
    return client.completions.create(model=MODEL, prompt=prompt, extra_body=body)


def content(client: openai.OpenAI, **fields: Any) -> str:
    return str(chat(client, **fields).choices[0].message.content)


@pytest.fixture(scope="module")
def tokenize(server: Server) -> Any:
    def ids(text: str, **more: Any) -> list[int]:
        made = server.http.post("/tokenize", json={"prompt": text, **more})
        return list(made.raise_for_status().json()["tokens"])

    return ids


# -- what is chosen ----------------------------------------------------------------------------


def test_only_allowed_tokens_are_chosen(client: openai.OpenAI, tokenize: Any) -> None:
    """In every reply of a batch by its own list."""
    for text in ("cat", "dog"):
        allowed = set(tokenize(text))
        more = {"allowed_token_ids": [*allowed], "temperature": 2, "max_tokens": 6}
        made = complete(client, return_token_ids=True, **more)
        assert len(made.choices[0].token_ids) == made.usage.completion_tokens > 0
        assert set(made.choices[0].token_ids) <= allowed


def test_a_bad_word_is_not_said(client: openai.OpenAI) -> None:
    assert content(client) == ANSWER
    assert "7" not in content(client, bad_words=["7"])
    assert "+ 4" not in content(client, bad_words=["+ 4"], max_tokens=4)
    assert content(client, bad_words=["never said"]) == ANSWER


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("allowed_token_ids", {"allowed_token_ids": []}),
        ("allowed_token_ids", {"allowed_token_ids": [1 << 30]}),
        ("allowed_token_ids", {"allowed_token_ids": "7"}),
        ("bad_words", {"bad_words": "7"}),
        ("bad_words", {"bad_words": [""]}),
        ("include_stop_str_in_output", {"include_stop_str_in_output": "yes"}),
        ("skip_special_tokens", {"skip_special_tokens": 1}),
        ("return_token_ids", {"return_token_ids": 1}),
        ("prompt_logprobs", {"prompt_logprobs": 100}),
        ("prompt_logprobs", {"prompt_logprobs": 1, "stream": True}),
    ],
    ids=str,
)
def test_what_is_wrong_is_a_400_that_names_it(
    client: openai.OpenAI, field: str, said: dict[str, Any]
) -> None:
    for ask in (chat, complete):
        with pytest.raises(openai.BadRequestError) as raised:
            ask(client, **said)
        assert str(raised.value.param).startswith(field)


# -- what is text ------------------------------------------------------------------------------


def test_a_stop_is_part_of_the_text_where_it_is_wanted(client: openai.OpenAI) -> None:
    assert content(client, stop=["="]) == "3 + 4 "
    assert content(client, stop=["="], include_stop_str_in_output=True) == "3 + 4 ="
    streamed: Any = client.chat.completions.create(
        model=MODEL,
        messages=SUM,
        temperature=0,
        stop=["="],
        stream=True,
        extra_body={"include_stop_str_in_output": True},
    )
    chunks = [chunk.choices[0] for chunk in streamed]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == "3 + 4 ="
    assert chunks[-1].stop_reason == "="


def test_a_token_that_stops_is_part_of_the_text_where_it_is_wanted(
    client: openai.OpenAI, tokenize: Any
) -> None:
    [seven] = tokenize("7", add_special_tokens=False)
    assert content(client, stop_token_ids=[seven]) == "3 + 4 = "
    both = {"stop_token_ids": [seven], "include_stop_str_in_output": True}
    assert content(client, **both) == ANSWER


def test_special_tokens_are_text_where_they_are_wanted(
    client: openai.OpenAI, tokenize: Any
) -> None:
    """In chats, completions, responses and streams; not the model's own end, which is a stop."""
    [end] = tokenize("<|im_end|>", add_special_tokens=False)
    forced = {"allowed_token_ids": [end], "ignore_eos": True}
    shown = {**forced, "skip_special_tokens": False}
    assert content(client, max_tokens=2, **forced) == ""
    assert content(client, max_tokens=2, **shown) == "<|im_end|>" * 2
    assert complete(client, **{**shown, "max_tokens": 2}).choices[0].text == "<|im_end|>" * 2
    made = client.responses.create(
        model=MODEL, input="Hi", max_output_tokens=2, extra_body={"temperature": 0, **shown}
    )
    assert made.output_text == "<|im_end|>" * 2
    assert content(client, skip_special_tokens=False) == ANSWER
    whole = {"skip_special_tokens": False, "include_stop_str_in_output": True}
    assert content(client, **whole) == f"{ANSWER}<|im_end|>"


# -- token ids ---------------------------------------------------------------------------------


def test_token_ids_come_with_a_chat(client: openai.OpenAI, server: Server) -> None:
    made = chat(client, return_token_ids=True, n=2)
    prompt = server.http.post("/tokenize", json={"messages": SUM}).json()["tokens"]
    assert made.prompt_token_ids == prompt
    assert len(made.prompt_token_ids) == made.usage.prompt_tokens
    for choice in made.choices:
        text = server.http.post("/detokenize", json={"tokens": choice.token_ids}).json()["prompt"]
        assert text == choice.message.content == ANSWER
    assert sum(len(choice.token_ids) for choice in made.choices) == made.usage.completion_tokens
    plain = chat(client)
    assert not hasattr(plain, "prompt_token_ids")
    assert not hasattr(plain.choices[0], "token_ids")


def test_token_ids_come_with_a_streamed_chat(client: openai.OpenAI) -> None:
    """Those of the prompt with the first chunk alone; those of a reply add up to all of them."""
    whole = chat(client, return_token_ids=True, n=2)
    made: Any = client.chat.completions.create(
        model=MODEL,
        messages=SUM,
        temperature=0,
        n=2,
        stream=True,
        extra_body={"return_token_ids": True},
    )
    chunks = list(made)
    assert chunks[0].prompt_token_ids == whole.prompt_token_ids
    assert not any(hasattr(chunk, "prompt_token_ids") for chunk in chunks[1:])
    for at in (0, 1):
        mine = [it for chunk in chunks for it in chunk.choices if it.index == at]
        ids = [token for it in mine for token in getattr(it, "token_ids", None) or []]
        assert ids == whole.choices[at].token_ids


@pytest.mark.parametrize("stream", one_in(2, [False, True]))
def test_token_ids_come_with_completions(
    client: openai.OpenAI, tokenize: Any, stream: bool
) -> None:
    """By choice, since each prompt has its own."""
    prompts = [TEXT, "Once upon a time"]
    made: Any = client.completions.create(
        model=MODEL,
        prompt=prompts,
        max_tokens=5,
        temperature=0,
        stream=stream,
        extra_body={"return_token_ids": True},
    )
    choices = [it for chunk in made for it in chunk.choices] if stream else made.choices
    alone = [complete(client, prompt, max_tokens=5) for prompt in prompts]
    for at, prompt in enumerate(prompts):
        mine = [it for it in choices if it.index == at]
        assert mine[0].prompt_token_ids == tokenize(prompt)
        assert not any(hasattr(it, "prompt_token_ids") for it in mine[1:])
        ids = [token for it in mine for token in getattr(it, "token_ids", None) or []]
        assert len(ids) == alone[at].usage.completion_tokens
        assert "".join(it.text for it in mine) == alone[at].choices[0].text


# -- log-probabilities of a prompt -------------------------------------------------------------


def test_a_prompt_comes_with_its_logprobs(client: openai.OpenAI, tokenize: Any) -> None:
    """Also when the prompt has been computed before, and the same as an echo's."""
    ids = tokenize(TEXT)
    echo = complete(client, ids, echo=True, logprobs=2, max_tokens=1).choices[0].logprobs
    for _ in range(2):
        [choice] = complete(client, ids, prompt_logprobs=2).choices
        first, *others = choice.prompt_logprobs
        assert first is None
        assert not choice.text.startswith(TEXT)
        for token, entry, logprob in zip(
            ids[1:], others, echo.token_logprobs[1 : len(ids)], strict=True
        ):
            own = entry[str(token)]
            assert own["logprob"] == pytest.approx(logprob, abs=1e-4)
            assert own["decoded_token"] in TEXT
            likeliest = [it for it in entry.values() if it["rank"] <= 2]
            assert len(likeliest) == 2
            assert len(entry) == (2 if own["rank"] <= 2 else 3)
            better = [it for it in entry.values() if it["logprob"] > own["logprob"]]
            assert len(better) == min(own["rank"] - 1, 2)


def test_a_conversation_comes_with_its_prompts_logprobs(client: openai.OpenAI) -> None:
    made = chat(client, prompt_logprobs=0, return_token_ids=True, n=2)
    first, *others = made.prompt_logprobs
    assert first is None
    assert [int(token) for entry in others for token in entry] == made.prompt_token_ids[1:]
    assert made.choices[0].message.content == ANSWER
    assert not hasattr(chat(client), "prompt_logprobs")


def test_an_echo_and_the_prompts_logprobs_have_as_many_alternatives_as_each_asked_for(
    client: openai.OpenAI, tokenize: Any
) -> None:
    [choice] = complete(client, TEXT, echo=True, logprobs=1, prompt_logprobs=4).choices
    count = len(tokenize(TEXT))
    assert all(len(top) <= 2 for top in choice.logprobs.top_logprobs[1:count])
    assert all(len(entry) >= 4 for entry in choice.prompt_logprobs[1:])


# -- echoes ------------------------------------------------------------------------------------


def offsets_fit(choice: Any) -> bool:
    """Every token stands where it is said to."""
    found = choice.logprobs
    pairs = [*zip(found.tokens, found.text_offset, strict=True)]
    ends = [*found.text_offset[1:], len(choice.text)]
    return all(
        choice.text[at:end] in (token, "") for (token, at), end in zip(pairs, ends, strict=True)
    )


@pytest.mark.parametrize("as_ids", [False, True])
def test_an_echo_is_whole_and_offsets_count_special_tokens(
    client: openai.OpenAI, tokenize: Any, as_ids: bool
) -> None:
    """A prompt of token ids comes back with its special tokens, as one of text does."""
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    prompt = tokenize(text) if as_ids else text
    [choice] = complete(client, prompt, echo=True, logprobs=0, max_tokens=3).choices
    assert choice.text.startswith(text)
    assert offsets_fit(choice)
    assert choice.logprobs.text_offset[len(tokenize(text))] == len(text)


def test_offsets_count_special_tokens_of_a_reply_that_shows_them(
    client: openai.OpenAI, tokenize: Any
) -> None:
    ids = tokenize("<|im_end|>a", add_special_tokens=False)
    forced = {"allowed_token_ids": ids, "ignore_eos": True, "temperature": 100, "seed": 1}
    for shown in (False, True):
        [choice] = complete(client, logprobs=0, skip_special_tokens=not shown, **forced).choices
        assert len(set(choice.logprobs.tokens)) == 2
        assert ("<|im_end|>" in choice.text) == shown
        assert offsets_fit(choice)
