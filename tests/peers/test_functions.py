"""The older form of tools in chat: `functions`, `function_call` and turns of the role function."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.peers.conftest import MODEL
from tests.peers.test_tools import QUESTION, SCHEMAS

FUNCTIONS: list[Any] = [
    {"name": name, "description": "It works.", "parameters": it} for name, it in SCHEMAS.items()
]


def choice_of(client: openai.OpenAI, messages: list[Any] = QUESTION, **more: Any) -> Any:
    asked: dict[str, Any] = {"functions": FUNCTIONS, "temperature": 0, "max_tokens": 99, **more}
    return client.chat.completions.create(model=MODEL, messages=messages, **asked).choices[0]


def test_a_function_is_called_and_its_result_answered(client: openai.OpenAI) -> None:
    choice = choice_of(client)
    assert choice.finish_reason == "function_call"
    called = choice.message.function_call
    assert choice.message.tool_calls is None
    assert (called.name, json.loads(called.arguments)) == ("get_weather", {"city": "Oslo"})
    result = {"role": "function", "name": called.name, "content": "rainy, 7 degrees"}
    turns = [*QUESTION, choice.message.model_dump(exclude_none=True), result]
    answered = choice_of(client, turns)
    assert answered.finish_reason == "stop"
    assert "rain" in answered.message.content
    assert answered.message.function_call is None


def test_a_stream_tells_the_same_call(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            functions=FUNCTIONS,
            temperature=0,
            max_tokens=99,
            stream=True,
        )
    )
    parts: list[Any] = [it.choices[0].delta.function_call for it in chunks]
    parts = [part for part in parts if part is not None]
    assert parts[0].name == "get_weather"
    assert not any(part.name for part in parts[1:])
    assert json.loads("".join(part.arguments for part in parts)) == {"city": "Oslo"}
    assert chunks[-1].choices[0].finish_reason == "function_call"
    assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks)


def test_a_named_function_must_be_called_and_none_may(client: openai.OpenAI) -> None:
    named = choice_of(client, function_call={"name": "add"})
    assert named.message.function_call.name == "add"
    assert json.loads(named.message.function_call.arguments).keys() == {"a", "b"}
    none = choice_of(client, function_call="none")
    assert none.message.function_call is None
    assert choice_of(client, function_call="auto").message.function_call.name == "get_weather"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"function_call": {"name": "no"}}, "function_call"),
        ({"function_call": "sometimes"}, "function_call"),
        ({"functions": [], "function_call": {"name": "add"}}, "function_call"),
        ({"functions": [{"name": "a b"}]}, "functions"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "functions"),
        ({"tool_choice": "required"}, "functions"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(
    client: openai.OpenAI, more: dict[str, Any], field: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=field):
        choice_of(client, **more)


@pytest.mark.parametrize("called", [{}, "add", {"name": 1}, {"name": "add", "arguments": 1}])
def test_an_earlier_call_that_is_none_is_refused_with_its_place(
    client: openai.OpenAI, called: Any
) -> None:
    turns = [*QUESTION, {"role": "assistant", "content": None, "function_call": called}]
    with pytest.raises(openai.BadRequestError, match=r"messages\[1\].function_call"):
        choice_of(client, turns)
