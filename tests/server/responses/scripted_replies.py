"""Replies by deltas, and requests to a server that plays them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx

from bushel.core import Event
from bushel.core.delta import CallBegin, CallEnd, CallPart, Delta, TextDelta, ThoughtDelta
from bushel.server.app import create_app
from bushel.server.service.services import Services
from tests.server.scripted_service import Service, Step, playing, run, unconnected

LOOK = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
PATCH = {"type": "custom", "name": "patch", "description": "Patches."}


def event(*deltas: Delta, finish: Any = None, tokens: int = 1, **more: Any) -> Event:
    return Event("", 0, (65,) * tokens, finish_reason=finish, deltas=deltas, **more)


def call(name: str, *fragments: str, at: int = 0, complete: bool = True) -> list[Delta]:
    parts = [CallPart(at, fragment) for fragment in fragments]
    return [CallBegin(at, name), *parts, CallEnd(at, complete)]


def steps(deltas: Sequence[Delta], finish: str = "stop") -> list[Step]:
    """One token for each delta, and one that ends the reply."""
    return [*([event(delta)] for delta in deltas), [event(finish=finish)]]


def replying(*deltas: Delta, finish: str = "stop") -> Service:
    return Service(playing(*steps(deltas, finish)))


THOUGHTFUL = [
    ThoughtDelta("Let me "),
    ThoughtDelta("see."),
    TextDelta("\n\n"),
    TextDelta("I "),
    TextDelta("look."),
    *call("look", '{"at": ', '"here"}'),
    *call("look", "{}", at=1),
]


class Talk:
    """Several requests to one application, which has one memory of them."""

    def __init__(self, service: Service | None = None):
        self.service = service or replying(TextDelta("Hi."), *call("look", "{}"))
        self._app = unconnected(create_app(Services(self.service)))  # type: ignore[arg-type]

    def ask(self, method: str, path: str, key: str = "mine", **more: Any) -> httpx.Response:
        async def work() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                headers = {"authorization": f"Bearer {key}"}
                return await http.request(method, f"/v1/responses{path}", headers=headers, **more)

        return run(work())

    def respond(self, input: Any = "Hello", key: str = "mine", **body: Any) -> httpx.Response:
        return self.ask("POST", "", key, json={"input": input, "tools": [LOOK], **body})

    def turns(self) -> list[tuple[str, Any]]:
        """Of the latest request, as the model got it."""
        messages = self.service.jobs[-1].request["messages"]
        return [(message["role"], message["content"]) for message in messages]


def respond(service: Service, input: Any = "Hello", **body: Any) -> httpx.Response:
    return Talk(service).respond(input, **{"tools": None, **body})


def streamed(text: str) -> list[dict[str, Any]]:
    """Events of a stream; each is named twice, and numbered."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, _, data = block.partition("\n")
        told = json.loads(data.removeprefix("data: "))
        assert name == f"event: {told['type']}"
        assert told["sequence_number"] == len(found)
        found.append(told)
    return found


def nameless(value: Any) -> Any:
    """Without what is new in every response: ids and times."""
    if isinstance(value, list):
        return [nameless(it) for it in value]
    if isinstance(value, dict):
        new = ("id", "call_id", "completed_at", "created_at")
        return {key: nameless(it) for key, it in value.items() if key not in new}
    return value
