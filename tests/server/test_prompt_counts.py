"""Routes that count give the number that the request itself has, for all bodies of real clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chat.corpus.bodies import NAMES, recorded
from tests.depth import one_in
from tests.server.server_process import FEW, Server, serving

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
COUNTED_AT = {
    "/v1/chat/completions": "/tokenize",
    MESSAGES: f"{MESSAGES}/count_tokens",
    f"{MESSAGES}/count_tokens": f"{MESSAGES}/count_tokens",
    RESPONSES: f"{RESPONSES}/input_tokens",
}
LONG = 5_000  # characters of a body
pytestmark = pytest.mark.corpus


@pytest.fixture(scope="module")
def server(far_model: Path) -> Iterator[Server]:
    """Under every name that a client may ask for."""
    names = ("--served-model-name", "far", "--model-alias", "*=far")
    with serving(*FEW, *names, model=str(far_model)) as running:
        yield running


def short(path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The request itself, with the shortest reply there is."""
    body = {key: value for key, value in body.items() if key not in ("stream_options", "thinking")}
    if path == RESPONSES:
        return path, {**body, "stream": False, "max_output_tokens": 1}
    if path.startswith(MESSAGES):
        thinking = {"type": "disabled"}
        return MESSAGES, {**body, "stream": False, "max_tokens": 1, "thinking": thinking}
    body.pop("max_completion_tokens", None)
    return path, {**body, "stream": False, "max_tokens": 1}


def prompt_tokens(usage: dict[str, Any]) -> int:
    if "prompt_tokens" in usage:
        return int(usage["prompt_tokens"])
    reused = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return int(usage["input_tokens"] + sum(usage.get(name) or 0 for name in reused))


def each() -> Iterator[Any]:
    """Long prompts, which are most of what agents send, are for those who have the time."""
    for name in NAMES:
        slow = len(json.dumps(recorded(name)[1])) > LONG
        yield pytest.param(name, marks=pytest.mark.long) if slow else name


@pytest.mark.parametrize("name", one_in(3, each()))
def test_a_body_is_counted_as_it_is_asked(name: str, server: Server) -> None:
    """Agents decide by it when to shorten a conversation. B72."""
    path, body = recorded(name)
    asked_at, asked = short(path, body)
    reply = server.http.post(asked_at, json=asked)
    count = server.http.post(COUNTED_AT[path], json=asked)
    assert reply.status_code == count.status_code, (reply.text, count.text)
    if reply.is_success:
        counted = count.json().get("input_tokens", count.json().get("count"))
        assert counted == prompt_tokens(reply.json()["usage"]) > 0
