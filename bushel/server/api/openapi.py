"""Pieces of the OpenAPI document that every API's routes and schemas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from bushel.server.api.errors import ErrorBody

Schema = dict[str, Any]
SCHEMAS = "#/components/schemas/{model}"  # where the document has them

# What may happen to any request, before or behind what it asks for.
_ANYWHERE = {
    400: "The request is malformed, or asks for something that is not supported.",
    401: "No API key was sent, or a wrong one.",
    403: "The Host or Origin header is not allowed.",
    405: "The method is not supported here.",
    431: "The request's header is too large.",
    500: "An unexpected error; the server's log has it under the request id.",
    503: "The server has no room for another connection or body, or the engine is not ready.",
}
_WITH_BODY = {
    408: "The body did not arrive in time, or the request took longer than its timeout.",
    413: "The body is too large.",
    415: "The body is not JSON.",
}
_OF_WORK = {
    404: "No such model.",
    409: "The request was cancelled.",
    429: "Too many requests are waiting.",
}


def documented(
    *,
    body: bool = False,
    work: bool = False,
    more: Mapping[int, str] | None = None,
    model: type[BaseModel] = ErrorBody,
) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route. model: their form."""
    statuses = {**_ANYWHERE, **(_WITH_BODY if body else {}), **(_OF_WORK if work else {})}
    statuses.update(more or {})
    # Named: of a model FastAPI makes a validator for each status of each route, and uses none.
    content = {"application/json": {"schema": {"$ref": SCHEMAS.format(model=model.__name__)}}}
    return {
        status: {"description": description, "content": content}
        for status, description in sorted(statuses.items())
    }


def schemas(*models: type[BaseModel]) -> dict[str, Schema]:
    """What the document has to say of forms of errors."""
    _, found = models_json_schema(
        [(model, "serialization") for model in models], ref_template=SCHEMAS
    )
    return dict(found["$defs"])


def streamed(description: str, kind: str = "text/event-stream") -> dict[str, Any]:
    """A reply that may be a stream, beside JSON. kind: its content type."""
    return {
        "description": description,
        # No schema: to some readers it is one of the whole stream, to others of one event.
        "content": {kind: {}},
    }


def object_schema(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
    }
