"""Calls of tools in the three APIs, streamed and whole."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from tests.depth import often
from tests.peers.conftest import MODEL

OSLO = "What is the weather in Oslo?"
QUESTION: list[Any] = [{"role": "user", "content": OSLO}]
HELLO: list[Any] = [{"role": "user", "content": "Hello!"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
SCHEMAS = {"get_weather": CITY, "add": NUMBERS}
CHAT: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": it}}
    for name, it in SCHEMAS.items()
]
FLAT: list[Any] = [
    {"type": "function", "name": name, "parameters": it, "strict": False}
    for name, it in SCHEMAS.items()
]
BLOCKS: list[Any] = [{"name": name, "input_schema": it} for name, it in SCHEMAS.items()]
Calls = list[tuple[str, Any]]


def chat_calls(client: openai.OpenAI, stream: bool, messages: Any = QUESTION, **more: Any) -> Calls:
    made: Any = client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, max_tokens=99, stream=stream, **more
    )
    if not stream:
        (choice,) = made.choices
        assert (choice.finish_reason == "tool_calls") == bool(choice.message.tool_calls)
        calls = choice.message.tool_calls or []
        return [(call.function.name, json.loads(call.function.arguments)) for call in calls]
    names: list[str] = []
    texts: list[str] = []
    for chunk in made:
        for call in chunk.choices[0].delta.tool_calls or []:
            if call.id:
                assert call.index == len(names)
                names.append(call.function.name)
                texts.append("")
            texts[call.index] += call.function.arguments
    assert chunk.choices[0].finish_reason == ("tool_calls" if names else "stop")
    return [(name, json.loads(text)) for name, text in zip(names, texts, strict=True)]


def response_calls(client: openai.OpenAI, stream: bool, input: str = OSLO, **more: Any) -> Calls:
    made: Any = client.responses.create(
        model=MODEL, input=input, temperature=0, max_output_tokens=99, stream=stream, **more
    )
    if stream:
        events = list(made)
        done = [it for it in events if it.type == "response.function_call_arguments.done"]
        made = events[-1].response
        items = [item for item in made.output if item.type == "function_call"]
        assert [(it.name, it.arguments) for it in done] == [(it.name, it.arguments) for it in items]
    return [
        (item.name, json.loads(item.arguments))
        for item in made.output
        if item.type == "function_call"
    ]


def message_calls(
    claude: anthropic.Anthropic, stream: bool, messages: Any = QUESTION, **more: Any
) -> Calls:
    asked: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": 99, **more}
    asked["extra_body"] = {"temperature": 0}
    if stream:
        with claude.messages.stream(**asked) as events:
            made = events.get_final_message()
    else:
        made = claude.messages.create(**asked)
    calls = [(it.name, it.input) for it in made.content if it.type == "tool_use"]
    assert (made.stop_reason == "tool_use") == bool(calls)
    return calls


STREAMED = pytest.mark.parametrize("stream", often([False, True], True))
WEATHER = [("get_weather", {"city": "Oslo"})]


@STREAMED
def test_a_model_calls_by_itself(
    client: openai.OpenAI, claude: anthropic.Anthropic, stream: bool
) -> None:
    assert chat_calls(client, stream, tools=CHAT) == WEATHER
    assert response_calls(client, stream, tools=FLAT) == WEATHER
    assert message_calls(claude, stream, tools=BLOCKS) == WEATHER


@STREAMED
def test_no_tool_may_be_called(
    client: openai.OpenAI, claude: anthropic.Anthropic, stream: bool
) -> None:
    assert chat_calls(client, stream, tools=CHAT, tool_choice="none") == []
    assert response_calls(client, stream, tools=FLAT, tool_choice="none") == []
    assert message_calls(claude, stream, tools=BLOCKS, tool_choice={"type": "none"}) == []


@STREAMED
def test_some_tool_must_be_called(
    client: openai.OpenAI, claude: anthropic.Anthropic, stream: bool
) -> None:
    assert chat_calls(client, stream, HELLO, tools=CHAT, tool_choice="required")
    assert response_calls(client, stream, "Hello!", tools=FLAT, tool_choice="required")
    assert message_calls(claude, stream, HELLO, tools=BLOCKS, tool_choice={"type": "any"})


@STREAMED
def test_a_named_tool_must_be_called(
    client: openai.OpenAI, claude: anthropic.Anthropic, stream: bool
) -> None:
    named: Any = {"type": "function", "function": {"name": "add"}}
    flat: Any = {"type": "function", "name": "add"}
    found = [
        chat_calls(client, stream, tools=CHAT, tool_choice=named),
        response_calls(client, stream, tools=FLAT, tool_choice=flat),
        message_calls(claude, stream, tools=BLOCKS, tool_choice={"type": "tool", "name": "add"}),
    ]
    for calls in found:
        [(name, arguments)] = calls
        assert name == "add"
        assert {key: type(value) for key, value in arguments.items()} == {"a": int, "b": int}


@STREAMED
def test_tools_can_be_allowed_by_name(client: openai.OpenAI, stream: bool) -> None:
    allowed: Any = {"mode": "required", "tools": [CHAT[1]]}
    choice: Any = {"type": "allowed_tools", "allowed_tools": allowed}
    assert chat_calls(client, stream, tools=CHAT, tool_choice=choice)[0][0] == "add"
    flat: Any = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "add"}],
    }
    assert response_calls(client, stream, tools=FLAT, tool_choice=flat)[0][0] == "add"


def test_one_call_at_most_where_more_are_not_wanted(
    client: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    single: Any = {"type": "any", "disable_parallel_tool_use": True}
    more: Any = {"tool_choice": "required", "parallel_tool_calls": False}
    assert len(chat_calls(client, False, tools=CHAT, **more)) == 1
    assert len(response_calls(client, False, tools=FLAT, **more)) == 1
    assert len(message_calls(claude, False, tools=BLOCKS, tool_choice=single)) == 1


def test_results_are_answered_in_text(client: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    """The model's own call, and what came of it, as each API has them."""
    result = "rainy, 7 degrees"
    call = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    turns: list[Any] = [
        *QUESTION,
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]
    said = client.chat.completions.create(model=MODEL, messages=turns, tools=CHAT, temperature=0)
    assert "rain" in str(said.choices[0].message.content)
    items: list[Any] = [
        *QUESTION,
        {"type": "function_call", "call_id": "c1", **call},
        {"type": "function_call_output", "call_id": "c1", "output": result},
    ]
    answered = client.responses.create(model=MODEL, input=items, tools=FLAT, temperature=0)
    assert "rain" in answered.output_text
    used = {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Oslo"}}
    blocks: list[Any] = [
        *QUESTION,
        {"role": "assistant", "content": [used]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": result}],
        },
    ]
    message = claude.messages.create(
        model=MODEL, messages=blocks, tools=BLOCKS, max_tokens=99, extra_body={"temperature": 0}
    )
    assert "rain" in "".join(getattr(it, "text", "") for it in message.content)


@pytest.mark.parametrize("choice", ["sometimes", {"type": "function"}, {"type": "no"}, 1])
def test_a_choice_that_is_none_is_refused_by_name(client: openai.OpenAI, choice: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        chat_calls(client, False, tools=CHAT, tool_choice=choice)
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        response_calls(client, False, tools=FLAT, tool_choice=choice)


def test_a_tool_that_is_not_there_cannot_be_chosen(
    client: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    named: Any = {"type": "function", "function": {"name": "no"}}
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        chat_calls(client, False, tools=CHAT, tool_choice=named)
    flat: Any = {"type": "function", "name": "no"}
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        response_calls(client, False, tools=FLAT, tool_choice=flat)
    with pytest.raises(anthropic.BadRequestError, match="tool_choice"):
        message_calls(claude, False, tools=BLOCKS, tool_choice={"type": "tool", "name": "no"})


@pytest.mark.parametrize(
    "tool",
    [{}, {"type": "function"}, {"type": "function", "function": {"name": "a b"}}, "add", 1],
)
def test_a_tool_that_is_none_is_refused_with_its_place(client: openai.OpenAI, tool: Any) -> None:
    with pytest.raises(openai.BadRequestError, match=r"tools\[1\]"):
        chat_calls(client, False, tools=[CHAT[0], tool])


def test_a_call_that_is_cut_off_says_so(client: openai.OpenAI) -> None:
    made = client.chat.completions.create(
        model=MODEL, messages=QUESTION, tools=CHAT, tool_choice="required", max_tokens=9
    )
    assert made.choices[0].finish_reason == "length"
