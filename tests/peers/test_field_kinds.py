"""The reference says of every field whether it is honoured, a hint or refused: and so it is."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.depth import often
from tests.peers.test_fields import SUM
from tests.server.server_process import Server
from tools.field_kinds import EMPTY, RequestField, request_fields
from tools.reference import PAGE, openapi_document

# A request of each route, to which fields are added.
BASES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": SUM, "max_tokens": 4, "temperature": 0},
    "/v1/completions": {"prompt": "3 + 4 =", "max_tokens": 4, "temperature": 0},
    "/v1/responses": {"input": "What is 3 + 4?", "max_output_tokens": 4, "temperature": 0},
    "/v1/responses/input_tokens": {"input": "What is 3 + 4?"},
    "/v1/messages": {"messages": SUM, "max_tokens": 4, "temperature": 0},
    "/v1/messages/count_tokens": {"messages": SUM},
    "/v1/embeddings": {"input": "Hello"},
    "/v1/rerank": {"query": "a", "documents": ["a", "b"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/tokenize": {"messages": SUM},
    "/detokenize": {"tokens": [1, 2]},
}
# Of some type that no field has.
WRONG: list[Any] = [{"no": {"such": 1}}, [[[]]], -987654.5, "\u0001 no such", True]


@cache
def fields() -> list[RequestField]:
    return [field for field in request_fields(openapi_document()) if field.path in BASES]


def of(kind: str, route: str) -> list[RequestField]:
    return [field for field in fields() if (field.kind, field.path) == (kind, route)]


def answer(server: Server, route: str, **more: Any) -> tuple[int, str]:
    """The status, and what was said: the text of a reply, or the message of an error."""
    reply = server.http.post(route, json={**BASES[route], **more})
    if reply.headers["content-type"] != "application/json":
        return reply.status_code, "a stream"
    told = reply.json()
    if reply.status_code != 200:
        return reply.status_code, str(told["error"]["message"])
    for key in ("id", "created", "created_at", "completed_at", "usage"):
        told.pop(key, None)
    for choice in told.get("choices", ()):
        choice.get("message", {}).pop("id", None)
    for item in told.get("output", ()):
        item.pop("id")
    return 200, str({key: told[key] for key in ("choices", "output", "content") if key in told})


ROUTES = pytest.mark.parametrize(
    "route",
    often(BASES, "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/rerank"),
)


@ROUTES
def test_refused_fields_are_refused_by_name_unless_they_are_empty(
    server: Server, route: str
) -> None:
    refused = of("refused", route)
    for field in refused:
        for value in (1, {"a": 1}):
            status, message = answer(server, route, **{field.name: value})
            assert (status, field.name in message) == (400, True), (field.name, value, message)
    may_be_empty = [field.name for field in refused if field.schema.get("enum") == EMPTY]
    for empty in EMPTY:
        assert answer(server, route, **dict.fromkeys(may_be_empty, empty))[0] == 200


@ROUTES
def test_hints_change_nothing(server: Server, route: str) -> None:
    hints = {field.name: value_of(field) for field in of("hint", route)}
    assert answer(server, route, **hints) == answer(server, route)


@ROUTES
def test_honoured_fields_are_read(server: Server, route: str) -> None:
    """What cannot be obeyed is refused by name; a field that nobody reads would not be."""
    assert answer(server, route)[0] == 200
    for field in of("honoured", route):
        told = (answer(server, route, **{field.name: value}) for value in WRONG)
        assert any(status >= 400 and field.name in message for status, message in told), field.name


def value_of(field: RequestField) -> Any:
    schemas = [field.schema, *field.schema.get("anyOf", ())]
    kinds = {str(schema.get("type")) for schema in schemas}
    if choices := [one for schema in schemas for one in schema.get("enum", ()) if one is not None]:
        return choices[0]
    samples = {"string": "x", "boolean": True, "object": {"a": "b"}, "integer": 1}
    return next((sample for kind, sample in samples.items() if kind in kinds), "x")


def test_the_reference_has_every_field_with_its_kind() -> None:
    text = PAGE.read_text()
    for field in request_fields(openapi_document()):
        rows = [line for line in text.splitlines() if line.startswith(f"| `{field.name}` |")]
        assert any(f"| {field.kind} |" in row for row in rows), field


def test_there_are_fields_of_every_kind() -> None:
    assert len(fields()) > 250
    assert {field.kind for field in fields()} == {"honoured", "hint", "refused"}
    kinds = {(field.path, field.name): field.kind for field in fields()}
    assert kinds["/v1/chat/completions", "temperature"] == "honoured"
    assert kinds["/v1/chat/completions", "user"] == "hint"
    assert kinds["/v1/chat/completions", "audio"] == "refused"
