"""OpenAI's SDK against `bushel serve`: tools, thoughts and forms, with answers that are right."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from tests.server.server_process import Server

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Oslo?"}]


@pytest.fixture
def client(tiny: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="any", max_retries=0)


def ask(client: openai.OpenAI, messages: list[dict[str, Any]], **more: Any) -> Any:
    settings: dict[str, Any] = {"temperature": 0, "max_tokens": 200, **more}
    return client.chat.completions.create(model="bushel:tiny", messages=messages, **settings)  # type: ignore[call-overload]


def test_a_tool_is_called_and_its_result_answered(client: openai.OpenAI) -> None:
    """The history of the second request is what the first one gave. B18, B23."""
    first = ask(client, QUESTION, tools=[WEATHER, ADD]).choices[0]
    assert first.finish_reason == "tool_calls"
    assert first.message.content is None
    (call,) = first.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "rainy, 7 degrees"}
    turns = [*QUESTION, first.message.model_dump(exclude_none=True), result]
    second = ask(client, turns, tools=[WEATHER, ADD]).choices[0]
    assert second.finish_reason == "stop"
    assert "rain" in second.message.content


def test_the_streaming_helper_gives_the_same_call(client: openai.OpenAI) -> None:
    """Nothing of the markup is in the content. B23."""
    with client.chat.completions.stream(
        model="bushel:tiny", messages=QUESTION, tools=[WEATHER], temperature=0, max_tokens=200
    ) as stream:  # type: ignore[call-overload]
        fragments = [it for it in stream if it.type == "tool_calls.function.arguments.delta"]
        final = stream.get_final_completion().choices[0]
    assert len(fragments) > 1
    assert final.message.content is None or final.message.content == ""
    (call,) = final.message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    assert final.finish_reason == "tool_calls"


def test_without_tools_nothing_is_called(client: openai.OpenAI) -> None:
    for more in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        choice = ask(client, QUESTION, **more).choices[0]
        assert choice.message.tool_calls is None
        assert choice.message.content


def test_a_tool_that_is_required_is_called_whatever_was_asked(client: openai.OpenAI) -> None:
    hello = [{"role": "user", "content": "Hello!"}]
    for choice in ("required", {"type": "function", "function": {"name": "add"}}):
        found = ask(client, hello, tools=[ADD], tool_choice=choice).choices[0]
        (call,) = found.message.tool_calls
        arguments = json.loads(call.function.arguments)
        assert call.function.name == "add"
        assert {type(arguments["a"]), type(arguments["b"])} == {int}


def test_thoughts_come_apart_from_the_answer(client: openai.OpenAI) -> None:
    """Reasoning is a field of its own when it is asked for, and absent when not. B29."""
    sums = [{"role": "user", "content": "What is 3 + 4?"}]
    kwargs = {"chat_template_kwargs": {"enable_thinking": True}}
    for more in (kwargs, {"enable_thinking": True}, {"reasoning": {"enabled": True}}):
        message = ask(client, sums, extra_body=more).choices[0].message
        assert message.reasoning_content
        assert "<" not in message.reasoning_content + message.content
        assert "7" in message.content
    plain = ask(client, sums).choices[0].message
    assert getattr(plain, "reasoning_content", None) is None


def test_a_budget_ends_the_thoughts_and_the_answer_follows(client: openai.OpenAI) -> None:
    sums = [{"role": "user", "content": "What is 3 + 4?"}]
    free = ask(client, sums, extra_body={"enable_thinking": True}).choices[0].message
    more = {"enable_thinking": True, "thinking_budget": 3}
    choice = ask(client, sums, extra_body=more).choices[0]
    assert choice.finish_reason == "stop"
    thoughts = choice.message.reasoning_content
    assert free.reasoning_content.startswith(thoughts)
    assert len(thoughts) < len(free.reasoning_content)
    assert choice.message.content


class Person(BaseModel):
    name: str
    age: int
    city: Literal["Oslo", "Rome"]


TOLD = "Extract name, age, city as JSON from: The name is Ada. The age is 36. The city is Oslo."


@pytest.mark.parametrize("thinking", [False, True])
def test_parse_gives_an_object_of_the_class(client: openai.OpenAI, thinking: bool) -> None:
    reply = client.chat.completions.parse(
        model="bushel:tiny",
        messages=[{"role": "user", "content": TOLD}],
        response_format=Person,
        temperature=0,
        max_tokens=200,
        extra_body={"enable_thinking": thinking},
    )
    message = reply.choices[0].message
    assert message.parsed == Person(name="Ada", age=36, city="Oslo")
    assert bool(getattr(message, "reasoning_content", None)) is thinking


def test_other_forms(client: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "Pick one."}]

    def said(**form: Any) -> str:
        return str(ask(client, question, extra_body=form).choices[0].message.content)

    assert said(guided_choice=["yes", "no"]) in ("yes", "no")
    assert said(guided_regex="[0-9]{3}-[a-f]{2}")[3] == "-"
    assert said(structured_outputs={"grammar": 'start: "a" "b"'}) == "ab"
    whole = ask(
        client, [{"role": "user", "content": TOLD}], response_format={"type": "json_object"}
    )
    assert json.loads(whole.choices[0].message.content)["name"] == "Ada"
