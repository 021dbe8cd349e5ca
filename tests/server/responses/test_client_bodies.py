"""Bodies as clients send them: recorded ones where they are at hand, and some of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bushel.core.delta import TextDelta
from bushel.server.responses.conversation import conversation_of
from tests import corpus
from tests.server.responses.scripted_replies import LOOK, PATCH, Talk, replying

RECORDED = corpus.files("clients/*responses*.json")

OWN: dict[str, dict[str, Any]] = {
    "a warm-up": {"input": "", "max_output_tokens": 1},
    "a coding agent": {
        "input": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "developer",
                "content": [{"type": "input_text", "text": "You work on files."}],
            },
            {
                "type": "message",
                "id": "msg_2",
                "role": "user",
                "content": [{"type": "input_text", "text": "What is in a.txt?"}],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "I should look."}],
                "encrypted_content": "opaque",
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "status": "completed",
                "name": "look",
                "arguments": '{"at": "a.txt"}',
                "call_id": "call_1",
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "A word."},
        ],
        "tools": [
            LOOK,
            {"type": "namespace", "name": "agents", "description": "", "tools": [LOOK]},
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto", "effort": "medium", "context": "all_turns"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "client_metadata": {"session": "s"},
        "text": {"verbosity": "low"},
    },
    "an agent with free text": {
        "input": [
            {"type": "additional_tools", "role": "developer", "tools": [PATCH]},
            {"role": "user", "content": "Change it."},
            {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "+ a"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
        ],
        "parallel_tool_calls": False,
        "stream": True,
    },
    "a picture": {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is it?"},
                    {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
                ],
            }
        ]
    },
    "a schema": {
        "input": [{"content": "q", "role": "user"}],
        "instructions": "be brief",
        "include": [],
        "tools": [],
        "text": {
            "format": {
                "type": "json_schema",
                "name": "a",
                "strict": True,
                "schema": {"type": "object", "properties": {"a": {"type": "string"}}},
            }
        },
    },
    "a benchmark": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Go on"}]}],
        "max_output_tokens": 8,
        "ignore_eos": True,
        "stream": True,
    },
}


@pytest.fixture(scope="module")
def talk() -> Talk:
    return Talk(replying(TextDelta("Hi.")))


def accepted(talk: Talk, body: dict[str, Any]) -> None:
    """By the route, which means by schema and translation both."""
    talk.service.jobs.clear()
    reply = talk.respond(**{"tools": None, **body, "model": None})
    named = {it.get("type") for it in body["input"]} if isinstance(body["input"], list) else set()
    if "item_reference" in named:
        assert reply.json()["error"]["code"] == "item_not_found"
    elif body.get("previous_response_id"):
        assert reply.json()["error"]["code"] == "previous_response_not_found"
    else:
        assert reply.status_code == 200, reply.text
        [job] = talk.service.jobs
        assert job.request == conversation_of(body)


@pytest.mark.parametrize("name", OWN)
def test_a_body_of_our_own_is_accepted(talk: Talk, name: str) -> None:
    accepted(talk, OWN[name])


@pytest.mark.corpus
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_body_is_accepted(talk: Talk, path: Path) -> None:
    accepted(talk, json.loads(path.read_text())["body"])
