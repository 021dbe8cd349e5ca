"""An error in the form of the API that was called."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.responses import Response
from starlette.types import Scope

from bushel.server.anthropic.errors import error_bytes as anthropic_bytes
from bushel.server.api.errors import error_bytes
from bushel.server.errors import ApiError
from bushel.server.llama_cpp.errors import error_bytes as llama_bytes
from bushel.server.observability.refusals import refusals
from bushel.server.ollama.errors import error_bytes as ollama_bytes
from bushel.server.unversioned import VERSION_PREFIX

_MESSAGES = f"{VERSION_PREFIX}/messages"
_MODELS = f"{VERSION_PREFIX}/models"
_HEALTH = "/health"  # asked by those who wait: a no is what they came for
# By how paths begin; elsewhere errors are OpenAI's.
_FORMS: dict[str, Callable[[ApiError], bytes]] = {
    _MESSAGES: anthropic_bytes,
    "/api/": ollama_bytes,
    "/completions": error_bytes,
    "/completion": llama_bytes,
    "/props": llama_bytes,
    "/apply-template": llama_bytes,
}


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
        payload = _form(scope["path"])(error)
    return Response(
        payload,
        status_code=error.status,
        headers={**error.headers, **(headers or {})},
        media_type="application/json",
    )


def refusal_bytes(url: bytes, error: ApiError) -> bytes:
    """The body alone, where no more of a request is known than its address, if that."""
    path = url.decode("latin-1")
    if path.startswith(_MESSAGES.removeprefix(VERSION_PREFIX)):
        path = f"{VERSION_PREFIX}{path}"
    return _form(path)(error)


def _form(path: str) -> Callable[[ApiError], bytes]:
    return next((form for start, form in _FORMS.items() if path.startswith(start)), error_bytes)
