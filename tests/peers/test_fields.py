"""Fields that people use with other servers."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from tests.depth import one_in
from tests.peers.conftest import MODEL
from tests.server.server_process import PATIENCE, Server

SUM: list[Any] = [{"role": "user", "content": "What is 3 + 4?"}]
STORY: list[Any] = [{"role": "user", "content": "Tell me a story."}]
WEATHER: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


def chat(client: openai.OpenAI, messages: list[Any] = SUM, **fields: Any) -> Any:
    """A choice, whole and as a stream tells it."""
    extra = {name: fields.pop(name) for name in [*fields] if name in EXTRA}
    made = client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, extra_body=extra, **fields
    )
    return made.choices[0]


EXTRA = ("stop_token_ids", "include_reasoning", "reasoning", "thinking_token_budget", "thinking")


# -- what ended a reply ------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_is_told(client: openai.OpenAI, stream: bool) -> None:
    made: Any = client.chat.completions.create(
        model=MODEL, messages=SUM, temperature=0, stop=["=", "!"], stream=stream
    )
    choice = [chunk.choices[0] for chunk in made][-1] if stream else made.choices[0]
    assert (choice.finish_reason, choice.stop_reason, choice.matched_stop) == ("stop", "=", "=")


@pytest.mark.parametrize("stream", [False, True])
def test_a_token_that_stops_is_told(client: openai.OpenAI, server: Server, stream: bool) -> None:
    ids = server.http.post("/tokenize", json={"prompt": "3 + 4 = 7"}).json()["tokens"]
    made: Any = client.completions.create(
        model=MODEL,
        prompt="3 + 4",
        temperature=0,
        max_tokens=16,
        stream=stream,
        extra_body={"stop_token_ids": ids, "ignore_eos": True},
    )
    choice = [chunk.choices[0] for chunk in made][-1] if stream else made.choices[0]
    assert choice.finish_reason == "stop"
    assert choice.stop_reason in ids
    assert choice.matched_stop == choice.stop_reason


def test_a_reply_that_ends_by_itself_was_stopped_by_nothing(client: openai.OpenAI) -> None:
    choice = chat(client, stop=["never said"])
    assert (choice.finish_reason, choice.stop_reason, choice.matched_stop) == ("stop", None, None)


# -- how long it is ----------------------------------------------------------------------------


def test_a_limit_of_minus_one_is_none(client: openai.OpenAI) -> None:
    """Where no limit at all would mean sixteen tokens, it ends with the model's own end."""
    made = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=-1)
    assert made.choices[0].finish_reason == "stop" or made.usage.completion_tokens > 16  # type: ignore[union-attr]
    assert chat(client, max_tokens=-1).finish_reason == "stop"
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        chat(client, max_tokens=-2)


# -- thoughts ----------------------------------------------------------------------------------

THINKING = {"chat_template_kwargs": {"enable_thinking": True}}


def thought(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(
        model=MODEL, messages=SUM, temperature=0, extra_body={**THINKING, **fields}
    )


def test_thoughts_are_counted(client: openai.OpenAI) -> None:
    made = thought(client)
    assert made.choices[0].message.reasoning_content
    details = made.usage.completion_tokens_details
    assert 0 < details.reasoning_tokens < made.usage.completion_tokens
    plain = client.chat.completions.create(model=MODEL, messages=SUM, temperature=0)
    assert plain.usage is not None
    assert plain.usage.completion_tokens_details is not None
    assert plain.usage.completion_tokens_details.reasoning_tokens == 0


@pytest.mark.parametrize(
    "field", one_in(2, [{"include_reasoning": False}, {"reasoning": {"exclude": True}}])
)
def test_thoughts_can_be_left_out_and_are_counted(
    client: openai.OpenAI, field: dict[str, Any]
) -> None:
    told, untold = thought(client), thought(client, **field)
    assert not hasattr(untold.choices[0].message, "reasoning_content")
    assert untold.choices[0].message.content == told.choices[0].message.content
    assert untold.usage.completion_tokens == told.usage.completion_tokens
    assert untold.usage.completion_tokens_details.reasoning_tokens > 0
    streamed = client.chat.completions.create(
        model=MODEL, messages=SUM, temperature=0, stream=True, extra_body={**THINKING, **field}
    )
    deltas = [chunk.choices[0].delta for chunk in streamed]
    assert not any(hasattr(delta, "reasoning_content") for delta in deltas)


def test_a_budget_has_vllms_name_too(client: openai.OpenAI) -> None:
    short, long = thought(client, thinking_token_budget=2), thought(client)
    assert len(short.choices[0].message.reasoning_content) < len(
        long.choices[0].message.reasoning_content
    )


@pytest.mark.parametrize("kind", ["auto", "adaptive"])
def test_a_model_that_may_decide_does_what_it_does_by_itself(
    client: openai.OpenAI, kind: str
) -> None:
    decided = client.chat.completions.create(
        model=MODEL, messages=SUM, temperature=0, extra_body={"thinking": {"type": kind}}
    )
    assert decided.choices[0].message.content == chat(client).message.content
    assert not hasattr(decided.choices[0].message, "reasoning_content")


# -- tools and seeds ---------------------------------------------------------------------------


def test_any_tool_means_some_tool(client: openai.OpenAI) -> None:
    """As clients of Mistral's and of Anthropic's servers write it."""
    any_tool: Any = "any"
    choice = chat(client, tools=WEATHER, tool_choice=any_tool)
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls[0].function.name == "get_weather"


@pytest.mark.long
def test_a_seed_gives_the_same_message_again(server: Server) -> None:
    with anthropic.Anthropic(base_url=server.url, api_key="any", timeout=PATIENCE) as claude:

        def said(seed: int) -> str:
            made = claude.messages.create(
                model=MODEL,
                messages=STORY,
                max_tokens=24,
                extra_body={"seed": seed, "temperature": 2},
            )
            return "".join(getattr(block, "text", "") for block in made.content)

        assert said(1) == said(1)
        assert said(1) != said(2)
