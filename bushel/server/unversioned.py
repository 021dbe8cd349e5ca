"""The same routes without `/v1`: some clients are given a base URL that ends with it, some not.

    /chat/completions ─> /v1/chat/completions ─> Access, RequestIdMiddleware, the route

A path is completed before anything else looks at it. So keys, limits, logs and the form of errors
are those of the route, and there is no second list of routes.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

VERSION_PREFIX = "/v1"


class Unversioned:
    """ASGI middleware. paths: of all routes."""

    def __init__(self, app: ASGIApp, paths: Iterable[str]):
        self._app = app
        every = set(paths)
        versioned = {path for path in every if path.startswith(f"{VERSION_PREFIX}/")}
        own = {_first(path) for path in every - versioned}
        self._names = {_first(path.removeprefix(VERSION_PREFIX)) for path in versioned} - own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            inner = path.removeprefix(scope.get("root_path", ""))
            if _first(inner) in self._names:
                before = path[: len(path) - len(inner)]
                scope = {**scope, "path": f"{before}{VERSION_PREFIX}{inner}"}
        await self._app(scope, receive, send)


def _first(path: str) -> str:
    """The part of a path that tells which API it belongs to."""
    return path.split("/", 2)[1] if path.startswith("/") else ""
