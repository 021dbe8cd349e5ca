"""An error in the form of the API that was called."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Scope

from bushel.server.anthropic.errors import error_bytes as anthropic_bytes
from bushel.server.api.errors import error_bytes
from bushel.server.errors import ApiError
from bushel.server.observability.refusals import refusals

_MESSAGES = "/v1/messages"
_MODELS = "/v1/models"
_HEALTH = "/health"  # asked by those who wait: a no is what they came for


def speaks_anthropic(scope: Scope) -> bool:
    """Both kinds of clients ask for models; those of one kind say so."""
    path: str = scope["path"]
    if path.startswith(_MODELS):
        return any(name == b"anthropic-version" for name, _ in scope["headers"])
    return path.startswith(_MESSAGES)


def refusal(scope: Scope, error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    if scope["path"] != _HEALTH:
        client = scope.get("client")
        refusals.tell(error, f"{scope['method']} {scope['path']}", client[0] if client else None)
    if speaks_anthropic(scope):
        payload = anthropic_bytes(error, scope.get("state", {}).get("request_id"))
    else:
        payload = error_bytes(error)
    return Response(
        payload,
        status_code=error.status,
        headers={**error.headers, **(headers or {})},
        media_type="application/json",
    )


def refusal_bytes(url: bytes, error: ApiError) -> bytes:
    """The body alone, where no more of a request is known than its address, if that."""
    if url.startswith(_MESSAGES.encode()):
        return anthropic_bytes(error)
    return error_bytes(error)
