"""Errors as Anthropic's clients expect them: `{"type": "error", "error": {"type", "message"}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, Field

from bushel.server.api.descriptions import KIND_OF_OBJECT
from bushel.server.api.errors import ERROR, ErrorMessage, ErrorType
from bushel.server.errors import ApiError

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
_TOO_LONG = "context_length_exceeded"  # `core.ContextLengthError`


class MessagesErrorDetail(BaseModel):
    type: ErrorType
    message: ErrorMessage
    details: dict[str, Any] | None = Field(None, description="The same, for programs.")


class MessagesError(BaseModel):
    type: Annotated[Literal["error"], KIND_OF_OBJECT]
    error: Annotated[MessagesErrorDetail, ERROR]
    request_id: str | None = Field(None, description="As the header request-id has it.")


def threads_unsupported() -> ApiError:
    """Threads are conversations that a server keeps. Clients that would use one recognise the
    error by its details, and go on by sending the whole conversation.
    """
    return ApiError(
        400,
        "thread is not supported by this server. Send the whole conversation instead.",
        code="unsupported_field",
        param="thread",
        details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
    )


def error_object(error: ApiError, request_id: str | None = None) -> dict[str, Any]:
    kind = _TYPES.get(error.status)
    if kind is None:
        kind = "api_error" if error.status >= 500 else "invalid_request_error"
    detail: dict[str, Any] = {"type": kind, "message": error.message}
    if error.code == _TOO_LONG and error.details:
        detail["message"] = _too_long(error.details)
    elif error.details:
        detail["details"] = error.details
    return {"type": "error", "error": detail, "request_id": request_id}


def error_bytes(error: ApiError, request_id: str | None = None) -> bytes:
    return msgspec.json.encode(error_object(error, request_id))


def _too_long(details: Mapping[str, Any]) -> str:
    """Clients know that they have to shorten the conversation by these words alone."""
    # One token of the context is left to the reply.
    most = details["context"] - 1
    return f"prompt is too long: {details['prompt_tokens']} tokens > {most} maximum"
