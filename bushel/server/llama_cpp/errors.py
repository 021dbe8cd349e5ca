"""Errors as llama.cpp's clients expect them: `{"error": {"code", "message", "type"}}`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from pydantic import BaseModel, Field

from bushel.server.api.errors import ERROR, ErrorMessage, ErrorType
from bushel.server.errors import ApiError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    503: "unavailable_error",
}


class LlamaErrorDetail(BaseModel):
    code: int = Field(description="The status.")
    message: ErrorMessage
    type: ErrorType
    param: str | None = Field(description="The field that it is about.")


class LlamaError(BaseModel):
    error: Annotated[LlamaErrorDetail, ERROR]


def error_bytes(error: ApiError) -> bytes:
    kind = _TYPES.get(error.status)
    if kind is None:
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
    detail = {
        "code": error.status,
        "message": error.message,
        "type": kind,
        "param": error.param,
    }
    return msgspec.json.encode({"error": detail})
