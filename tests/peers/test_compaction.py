"""A conversation made shorter by `/v1/responses/compact`, and gone on with."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.peers.conftest import MODEL
from tests.server.server_process import Server

HISTORY: list[Any] = [
    {"role": "user", "content": "What is 3 + 4?"},
    {"role": "assistant", "content": "3 + 4 = 7."},
    {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1}'},
    {"type": "function_call_output", "call_id": "c", "output": "2"},
    {"role": "user", "content": "What is 1 + 1?"},
]

SHORT = {"max_output_tokens": 24}


def compacted(client: openai.OpenAI, **fields: Any) -> Any:
    return client.responses.compact(model=MODEL, extra_body=SHORT, **{"input": HISTORY, **fields})


@pytest.mark.long
def test_what_the_user_said_stays_and_one_item_stands_for_the_rest(client: openai.OpenAI) -> None:
    made = compacted(client, instructions="You are kind.")
    assert made.object == "response.compaction"
    *kept, item = [one.to_dict(warnings=False) for one in made.output]
    assert [one["content"][0]["text"] for one in kept] == ["What is 3 + 4?", "What is 1 + 1?"]
    assert {one["role"] for one in kept} == {"user"}
    assert (item["type"], bool(item["encrypted_content"])) == ("compaction", True)
    assert made.usage.input_tokens > 0
    assert made.usage.output_tokens > 0


def test_a_conversation_goes_on_from_it(client: openai.OpenAI, server: Server) -> None:
    """The summary is part of the next prompt, and the prompt is shorter than the conversation."""
    made = compacted(client)
    items = [one.to_dict(warnings=False) for one in made.output]
    asked: Any = [*items, {"role": "user", "content": "And 2 + 2?"}]
    reply = client.responses.create(model=MODEL, input=asked, temperature=0)
    assert reply.status == "completed"

    def count(given: Any) -> int:
        body = {"model": MODEL, "input": given}
        return int(server.http.post("/v1/responses/input_tokens", json=body).json()["input_tokens"])

    without = [item for item in asked if item.get("type") != "compaction"]
    assert count(asked) > count(without)
    assert compacted(client, input=asked).output[-1].type == "compaction"


def test_one_that_is_kept_can_be_compacted(client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="What is 3 + 4?", temperature=0)
    made = compacted(client, input="And 2 + 2?", previous_response_id=first.id)
    texts = [one.to_dict(warnings=False)["content"][0]["text"] for one in made.output[:-1]]
    assert texts == ["What is 3 + 4?", "And 2 + 2?"]


def test_tools_of_the_conversation_are_not_called(client: openai.OpenAI) -> None:
    """As Codex sends them along."""
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
    more = {**SHORT, "tools": tools, "parallel_tool_calls": True, "reasoning": {"effort": "low"}}
    made = client.responses.compact(model=MODEL, input=HISTORY, extra_body=more)
    assert [one.type for one in made.output] == ["message", "message", "compaction"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": True}, "stream"),
        ({"input": None}, "input"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, None),
        ({"model": "nobody"}, "model"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused(
    server: Server, fields: dict[str, Any], param: str | None
) -> None:
    reply = server.http.post("/v1/responses/compact", json={"input": HISTORY, **fields})
    assert reply.status_code in (400, 404)
    assert reply.json()["error"]["param"] == (param or "input[0].encrypted_content")
