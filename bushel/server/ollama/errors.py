"""Errors as Ollama's clients expect them: `{"error": "…"}`."""

from __future__ import annotations

import msgspec
from pydantic import BaseModel

from bushel.server.api.errors import ErrorMessage
from bushel.server.errors import ApiError


class OllamaError(BaseModel):
    error: ErrorMessage


def error_bytes(error: ApiError) -> bytes:
    return msgspec.json.encode({"error": error.message})


def failed_stream(error: ApiError) -> bytes:
    """What ends a stream that fails."""
    return error_bytes(error) + b"\n"
