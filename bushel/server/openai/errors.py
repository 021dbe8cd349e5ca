"""Errors as OpenAI's clients expect them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import BaseModel
from starlette.responses import Response

from bushel.server.errors import ApiError

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
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


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    error: ErrorDetail


def documented(
    *, body: bool = False, work: bool = False, more: Mapping[int, str] | None = None
) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route, for its OpenAPI description."""
    found = {**_ANYWHERE, **(_WITH_BODY if body else {}), **(_OF_WORK if work else {})}
    found.update(more or {})
    return {
        status: {"model": ErrorBody, "description": said} for status, said in sorted(found.items())
    }


def error_bytes(error: ApiError) -> bytes:
    kind = _TYPES.get(error.status)
    if kind is None:
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
    detail = {
        "message": error.message,
        "type": kind,
        "param": error.param,
        "code": error.code,
    }
    return msgspec.json.encode({"error": detail})


def error_headers(error: ApiError) -> dict[str, str]:
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers


def error_response(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        error_bytes(error),
        status_code=error.status,
        headers={**error_headers(error), **(headers or {})},
        media_type="application/json",
    )


def internal_error(request_id: str) -> ApiError:
    return ApiError(
        500, f"An unexpected error. The server's log has it as {request_id}.", code="internal_error"
    )
