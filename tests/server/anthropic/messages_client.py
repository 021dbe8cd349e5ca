"""Asking a scripted service the way Anthropic's clients do, and reading its events."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.server.scripted_service import Service, ask

HELLO: dict[str, Any] = {"max_tokens": 64, "messages": [{"role": "user", "content": "Hello"}]}
TOOL = {
    "name": "read",
    "description": "Reads a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}


def post(service: Service, path: str = "/v1/messages", **body: Any) -> httpx.Response:
    headers = body.pop("headers", {})
    return ask(service, "POST", path, json={**HELLO, **body}, headers=headers)


def named(text: str) -> list[tuple[str, dict[str, Any]]]:
    """A stream's events: (name, data). Every one has both, and the data repeat the name."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert name == f"event: {payload['type']}"
        found.append((payload["type"], payload))
    return found


def put_together(text: str) -> dict[str, Any]:
    """The message that a stream says, as its clients put it together; checks the order."""
    events = [data for name, data in named(text) if name != "ping"]
    first, *middle, delta, last = events
    assert (first["type"], delta["type"], last["type"]) == (
        "message_start",
        "message_delta",
        "message_stop",
    )
    message = first["message"]
    open_block: dict[str, Any] | None = None
    pieces: list[str] = []
    for event in middle:
        if event["type"] == "content_block_start":
            assert open_block is None
            assert event["index"] == len(message["content"])
            open_block, pieces = event["content_block"], []
            message["content"].append(open_block)
            continue
        assert open_block is not None
        assert event["index"] == len(message["content"]) - 1
        if event["type"] == "content_block_stop":
            _close(open_block, "".join(pieces))
            open_block = None
        elif event["delta"]["type"] == "signature_delta":
            open_block["signature"] = event["delta"]["signature"]
        else:
            [piece] = (value for key, value in event["delta"].items() if key != "type")
            pieces.append(piece)
    assert open_block is None
    return {**message, **delta["delta"], "usage": delta["usage"]}


def _close(block: dict[str, Any], said: str) -> None:
    if block["type"] != "tool_use":
        block[block["type"]] = said
        return
    try:
        block["input"] = json.loads(said or "{}")
    except ValueError:
        block["input"] = {"INVALID_JSON": said}
