"""Routes that count give the number that the request itself has (B72)."""

from __future__ import annotations

import base64
import io
from typing import Any

import anthropic
import openai
import pytest
from PIL import Image

from tests.peers.conftest import MODEL
from tests.server.server_process import PATIENCE, Server

SUM: list[Any] = [{"role": "user", "content": "What is 3 + 4?"}]
TOOL: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALLED: list[Any] = [
    *SUM,
    {
        "role": "assistant",
        "content": None,
        "reasoning": "I look.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Sunny."},
]


def picture() -> str:
    file = io.BytesIO()
    Image.new("RGB", (96, 64), "red").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


SEEN: list[Any] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture()}"}},
        ],
    }
]
CHATS: dict[str, dict[str, Any]] = {
    "a question": {"messages": SUM},
    "tools": {"messages": SUM, "tools": [{"type": "function", "function": TOOL}]},
    "calls": {"messages": CALLED, "tools": [{"type": "function", "function": TOOL}]},
    "a picture": {"messages": SEEN},
    "a beginning": {
        "messages": [*SUM, {"role": "assistant", "content": "It is"}],
        "continue_final_message": True,
        "add_generation_prompt": False,
    },
    "thoughts": {"messages": SUM, "chat_template_kwargs": {"enable_thinking": True}},
    "effort": {"messages": SUM, "reasoning_effort": "high"},
    "no tools": {
        "messages": SUM,
        "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": "none",
    },
}


@pytest.mark.parametrize("name", CHATS)
def test_a_chat_is_counted_as_it_is_asked(name: str, server: Server) -> None:
    body = {"model": MODEL, **CHATS[name]}
    counted = server.http.post("/tokenize", json=body).raise_for_status().json()
    asked = server.http.post("/v1/chat/completions", json={**body, "max_tokens": 1}).json()
    assert counted["count"] == len(counted["tokens"]) == asked["usage"]["prompt_tokens"]


@pytest.mark.parametrize("text", ["Hello, world!", "", "Zürich 🍎", "a\n\nb"])
def test_a_text_is_counted_as_it_is_asked(text: str, server: Server) -> None:
    counted = server.http.post("/tokenize", json={"prompt": text}).json()
    if not counted["count"]:
        return
    body = {"prompt": text, "max_tokens": 1}
    asked = server.http.post("/v1/completions", json=body).json()
    assert counted["count"] == asked["usage"]["prompt_tokens"]
    back = server.http.post("/detokenize", json={"tokens": counted["tokens"]}).json()
    assert back["content"] == back["prompt"]


def test_the_form_of_llama_cpp(server: Server) -> None:
    plain = server.http.post("/tokenize", json={"content": "Hello 🍎"}).json()
    special = server.http.post(
        "/tokenize", json={"content": "Hello 🍎", "add_special": True}
    ).json()
    usual = server.http.post("/tokenize", json={"prompt": "Hello 🍎"}).json()
    assert special["tokens"] == usual["tokens"]
    assert len(plain["tokens"]) <= len(special["tokens"])
    pieces = server.http.post("/tokenize", json={"content": "Hello 🍎", "with_pieces": True}).json()
    assert [piece["id"] for piece in pieces["tokens"]] == plain["tokens"]
    whole = b"".join(
        piece["piece"].encode() if isinstance(piece["piece"], str) else bytes(piece["piece"])
        for piece in pieces["tokens"]
    )
    assert whole.decode() == "Hello 🍎"


def test_texts_of_tokens_come_when_they_are_asked_for(server: Server) -> None:
    told = server.http.post("/tokenize", json={"prompt": "Hello", "return_token_strs": True}).json()
    assert len(told["token_strs"]) == told["count"]
    assert server.http.post("/tokenize", json={"prompt": "Hello"}).json()["token_strs"] is None


@pytest.mark.parametrize(
    "body", [{}, {"prompt": "a", "content": "a"}, {"prompt": "a", **CHATS["a question"]}]
)
def test_exactly_one_thing_is_counted(body: dict[str, Any], server: Server) -> None:
    reply = server.http.post("/tokenize", json=body)
    assert reply.status_code == 400
    assert "exactly one of prompt, content and messages" in reply.json()["error"]["message"]


RESPONSES: dict[str, dict[str, Any]] = {
    "a text": {"input": "What is 3 + 4?"},
    "instructions": {"input": "What is 3 + 4?", "instructions": "Be brief."},
    "tools": {"input": "The weather?", "tools": [{"type": "function", **TOOL}]},
    "items": {"input": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]},
}


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_counted_as_it_is_asked(name: str, client: openai.OpenAI) -> None:
    body = RESPONSES[name]
    counted = client.responses.input_tokens.count(model=MODEL, **body)
    asked = client.responses.create(model=MODEL, max_output_tokens=1, **body)
    assert counted.object == "response.input_tokens"
    assert asked.usage is not None
    assert counted.input_tokens == asked.usage.input_tokens


def test_a_response_that_goes_on_is_counted_with_what_went_before(client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="What is 3 + 4?", max_output_tokens=8)
    more: dict[str, Any] = {"input": "And 1 + 1?", "previous_response_id": first.id}
    counted = client.responses.input_tokens.count(model=MODEL, **more)
    asked = client.responses.create(model=MODEL, max_output_tokens=1, **more)
    assert asked.usage is not None
    assert counted.input_tokens == asked.usage.input_tokens > first.usage.input_tokens  # type: ignore[union-attr]


@pytest.mark.parametrize("tools", [False, True])
def test_a_message_is_counted_as_it_is_asked(tools: bool, server: Server) -> None:
    fields: dict[str, Any] = {"model": MODEL, "messages": SUM, "system": "Be brief."}
    if tools:
        schema = TOOL["parameters"]
        fields["tools"] = [{"name": "get_weather", "input_schema": schema}]
    with anthropic.Anthropic(base_url=server.url, api_key="any", timeout=PATIENCE) as claude:
        counted = claude.messages.count_tokens(**fields)
        asked = claude.messages.create(max_tokens=1, **fields).usage
    whole = asked.input_tokens + (asked.cache_creation_input_tokens or 0)
    assert counted.input_tokens == whole + (asked.cache_read_input_tokens or 0)
