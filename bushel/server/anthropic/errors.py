"""Errors as Anthropic's clients expect them: `{"type": "error", "error": {"type", "message"}}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from pydantic import BaseModel

from bushel.server.errors import ApiError
from bushel.server.openai.errors import documented as documented_statuses

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
# `core.ContextLengthError` in words.
_TOO_LONG = re.compile(r"context length is (\d+) tokens, but the prompt has (?:at least )?(\d+) ")


class MessagesErrorDetail(BaseModel):
    type: str
    message: str
    details: dict[str, Any] | None = None


class MessagesError(BaseModel):
    type: Literal["error"]
    error: MessagesErrorDetail
    request_id: str | None = None


class Threaded(ApiError):
    """Threads are conversations that a server keeps. Clients that would use one recognise the
    error by its code, and go on by sending the whole conversation.
    """

    details: Mapping[str, Any] = {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }

    def __init__(self) -> None:
        said = "thread is not supported by this server. Send the whole conversation instead."
        super().__init__(400, said, code="unsupported_field", param="thread")


def documented(*, work: bool = False) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route with a body, for its OpenAPI description."""
    found = documented_statuses(body=True, work=work, more={404: "No such model."})
    return {status: {**said, "model": MessagesError} for status, said in found.items()}


def error_object(error: ApiError, request_id: str | None = None) -> dict[str, Any]:
    kind = _TYPES.get(error.status)
    if kind is None:
        kind = "api_error" if error.status >= 500 else "invalid_request_error"
    detail: dict[str, Any] = {"type": kind, "message": _message(error)}
    if isinstance(error, Threaded):
        detail["details"] = error.details
    return {"type": "error", "error": detail, "request_id": request_id}


def error_bytes(error: ApiError, request_id: str | None = None) -> bytes:
    return msgspec.json.encode(error_object(error, request_id))


def _message(error: ApiError) -> str:
    """Clients know that they have to shorten the conversation by these words alone."""
    found = _TOO_LONG.search(error.message) if error.code == "context_length_exceeded" else None
    if found is None:
        return error.message
    context, prompt = map(int, found.groups())
    # One token of the context is left to the reply.
    return f"prompt is too long: {prompt} tokens > {context - 1} maximum"
