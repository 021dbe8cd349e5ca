"""One question by every API, and what the reply says, told alike."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.peers.conftest import MODEL
from tests.server.server_process import Server

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
APIS = tuple(PATHS)
LIMITS = {"responses": "max_output_tokens"}  # where it is not max_tokens
STORY = "Tell me a story."


@dataclass
class Reply:
    """prompt, completion: tokens. end: as the API words it."""

    text: str
    prompt: int
    completion: int
    end: str
    whole: dict[str, Any]


def body_of(api: str, text: str = STORY, *, tokens: int = 12, **fields: Any) -> dict[str, Any]:
    if api == "completions":
        said: dict[str, Any] = {"prompt": text}
    elif api == "responses":
        said = {"input": text, "store": False}
    else:
        said = {"messages": [{"role": "user", "content": text}]}
    return {"model": MODEL, **said, LIMITS.get(api, "max_tokens"): tokens, **fields}


def post(server: Server, api: str, body: Any) -> httpx.Response:
    return server.http.post(PATHS[api], json=body)


def ask(server: Server, api: str, text: str = STORY, **fields: Any) -> Reply:
    reply = post(server, api, body_of(api, text, **fields))
    assert reply.status_code == 200, reply.text
    return read(api, reply.json())


def read(api: str, whole: dict[str, Any]) -> Reply:
    usage = whole["usage"]
    if api == "messages":
        text = "".join(block.get("text", "") for block in whole["content"])
        reused = usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
        prompt, end = usage["input_tokens"] + reused, whole["stop_reason"]
        return Reply(text, prompt, usage["output_tokens"], end, whole)
    if api == "responses":
        parts = [part for item in whole["output"] for part in item.get("content", ())]
        text = "".join(part.get("text", "") for part in parts)
        prompt, completion = usage["input_tokens"], usage["output_tokens"]
        return Reply(text, prompt, completion, whole["status"], whole)
    [choice] = whole["choices"]
    text = choice["text"] if api == "completions" else choice["message"]["content"]
    prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
    return Reply(text, prompt, completion, choice["finish_reason"], whole)


@contextlib.contextmanager
def streaming(server: Server, api: str, body: dict[str, Any]) -> Iterator[httpx.Response]:
    with server.http.stream("POST", PATHS[api], json={**body, "stream": True}) as reply:
        yield reply


def events(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in reply.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def streamed(server: Server, api: str, text: str = STORY, **fields: Any) -> list[dict[str, Any]]:
    with streaming(server, api, body_of(api, text, **fields)) as reply:
        assert reply.status_code == 200, reply.read()
        return list(events(reply))


def text_of(api: str, event: dict[str, Any]) -> str:
    """That an event of a stream adds."""
    if api == "messages":
        return str(event.get("delta", {}).get("text", ""))
    if api == "responses":
        return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""
    said = (
        choice["text"] if api == "completions" else choice["delta"].get("content") or ""
        for choice in event["choices"]
    )
    return "".join(said)
