"""The path below which a proxy has this server: requests are answered with it and without it."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bushel.server.http.accept import wants_html


class RootPath:
    """ASGI middleware: behind it, nobody knows of the path. Some proxies take it away before they
    pass a request on, and some leave it.
    """

    def __init__(self, app: ASGIApp, path: str):
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._path and scope["type"] == "http":
            if scope["path"] == self._path and wants_html(Headers(scope=scope)):
                # The page finds its files beside it, which takes the slash.
                await RedirectResponse(f"{self._path}/")(scope, receive, send)
                return
            scope["path"] = self._below(scope["path"])
        await self._app(scope, receive, send)

    def _below(self, path: str) -> str:
        if path == self._path:
            return "/"
        return path.removeprefix(self._path) if path.startswith(f"{self._path}/") else path
