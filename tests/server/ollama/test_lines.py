"""Lines of JSON, whatever happens to their stream: Ollama's clients read nothing else."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from bushel.core import CallBegin, CallEnd, CallPart
from bushel.server.service.job import GenerationJob
from tests.server.scripted_service import (
    Service,
    Step,
    Ticket,
    ask,
    failing,
    options,
    playing,
    said,
)

MESSAGES = [{"role": "user", "content": "Hello"}]
CHAT, GENERATE = {"messages": MESSAGES}, {"prompt": "Hello"}
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


def lines(reply: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in reply.text.splitlines()]


@pytest.mark.parametrize(("path", "body"), [("/api/chat", CHAT), ("/api/generate", GENERATE)])
def test_a_stream_that_fails_ends_with_an_error(path: str, body: dict[str, Any]) -> None:
    """And not with a line that is done, which a client would take for a success. B48a."""
    service = Service(playing([said("Hi")], failing(503, "engine_restarted")))
    reply = ask(service, "POST", path, json=body)
    *_, before, last = lines(reply)
    assert before["done"] is False
    assert last == {"error": "It went wrong."}


@pytest.mark.parametrize(("path", "body"), [("/api/chat", CHAT), ("/api/generate", GENERATE)])
def test_whoever_waits_gets_lines_that_say_nothing(path: str, body: dict[str, Any]) -> None:
    """Comments and empty lines are no JSON. B54."""

    @dataclass
    class Slow(Service):
        async def open(self, job: GenerationJob, wake: Any) -> Ticket:
            await asyncio.sleep(0.1)
            return await super().open(job, wake)

    step: list[Step] = [[said("Hi", finish="stop")]]
    slow = Slow(playing(*step), options(keepalive_seconds=0.02), loading=True)
    reply = ask(slow, "POST", path, json=body)
    assert reply.headers["content-type"] == "application/x-ndjson"
    waiting, *_, last = lines(reply)
    assert waiting.get("response", waiting.get("message", {}).get("content")) == ""
    assert (waiting["done"], last["done"], last["done_reason"]) == (False, True, "stop")
    at_once = Slow(playing(*step), options(keepalive_seconds=0.02))  # the control: it is loaded
    assert len(lines(ask(at_once, "POST", path, json=body))) < len(lines(reply))


def test_a_call_that_is_cut_off_has_no_arguments() -> None:
    """What there is of it cannot be taken for any. B24."""
    deltas = (CallBegin(0, "read"), CallPart(0, '{"path": "a'), CallEnd(0, False))
    service = Service(playing([said("", finish="length", tokens=3, deltas=deltas)]))
    reply = ask(service, "POST", "/api/chat", json={**CHAT, "tools": [TOOL], "stream": False})
    [call] = reply.json()["message"]["tool_calls"]
    assert call["function"]["arguments"] == {"INVALID_JSON": '{"path": "a'}
    assert reply.json()["done_reason"] == "length"


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/api/chat"), ("GET", "/api/tags"), ("POST", "/api/pull")]
)
def test_a_key_is_needed_and_that_is_told_in_this_form(method: str, path: str) -> None:
    service = Service(options=options(api_keys=("sesame",)))
    reply = ask(service, method, path)
    assert (reply.status_code, reply.json()) == (401, {"error": "An API key is needed."})
    opened = ask(service, method, path, headers={"authorization": "Bearer sesame"})
    assert opened.status_code != 401


def test_unloading_and_pulling_are_for_operators() -> None:
    """Of several keys none is an operator's, unless one is named so. B68."""
    service = Service(options=options(api_keys=("one", "two")))
    key = {"x-api-key": "one"}
    for path, body in (
        ("/api/generate", {"prompt": "", "keep_alive": 0}),
        ("/api/chat", {"messages": [], "keep_alive": "0s"}),
        ("/api/pull", {"model": "someone/small"}),
    ):
        reply = ask(service, "POST", path, json=body, headers=key)
        assert reply.status_code == 403
        assert "operator" in reply.json()["error"]
    loaded = ask(service, "POST", "/api/generate", json={"prompt": ""}, headers=key)
    assert loaded.json()["done_reason"] == "load"
