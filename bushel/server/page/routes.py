"""The page's routes: who gets it at `/`, and what a browser may do with it.

Its files are few and small, so they are read once, and compressed once.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from bushel.server.http.accept import wants_html

BUILT = Path(__file__).parent / "built"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".md": "text/markdown; charset=utf-8",
}
# Scripts and styles of this server alone, and no text becomes one of them; pictures also as the
# user pasted them; no request to anywhere else.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # A new server has a new page; asking whether it is the same costs nothing near it.
    "cache-control": "no-cache",
}


@dataclass(frozen=True)
class PageFile:
    plain: bytes
    zipped: bytes
    etag: str
    type: str

    @staticmethod
    def read(path: Path) -> PageFile:
        plain = path.read_bytes()
        digest = hashlib.sha256(plain).hexdigest()[:24]
        return PageFile(plain, gzip.compress(plain, mtime=0), f'"{digest}"', _TYPES[path.suffix])

    def answer(self, headers: Headers, vary: str = "accept-encoding") -> Response:
        known = headers.get("if-none-match", "")
        sent = {**_HEADERS, "etag": self.etag, "vary": vary}
        # A proxy that compresses marks the etag as weak.
        if self.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
            return Response(status_code=304, headers=sent)
        if "gzip" in headers.get("accept-encoding", ""):
            sent["content-encoding"] = "gzip"
            return Response(self.zipped, headers={**sent, "content-type": self.type})
        return Response(self.plain, headers={**sent, "content-type": self.type})


_HERE = b'{"message":"Bushel is running. A browser shows its page here, and /docs its API."}\n'


def page_routes() -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    files = {path.name: PageFile.read(path) for path in sorted(BUILT.iterdir())}
    index = files.pop("index.html")

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def home(request: Request) -> Response:
        if wants_html(request.headers):
            return index.answer(request.headers, "accept, accept-encoding")
        # Some clients ask at their start whether anyone is there.
        return Response(_HERE, media_type="application/json", headers={"vary": "accept"})

    @routes.api_route("/docs", methods=["GET", "HEAD"])
    async def docs(request: Request) -> Response:
        return index.answer(request.headers)

    @routes.api_route("/page/{name}", methods=["GET", "HEAD"])
    async def file(name: str, request: Request) -> Response:
        if name not in files:
            raise HTTPException(404)
        return files[name].answer(request.headers)

    return routes
