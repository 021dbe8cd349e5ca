"""Who may ask: the key, the name the server was called by, and which web pages may call it.

A web page the user happens to visit can send requests to a server on the user's machine. Three
ways to do so are closed here: a name that suddenly resolves to this machine (Host), a page of
another site (Origin, Sec-Fetch-Site), and bodies that browsers send without asking (their type).
"""

from __future__ import annotations

import ipaddress
import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bushel.server.callers import ApiKeys, is_background
from bushel.server.error_response import refusal
from bushel.server.errors import ApiError
from bushel.server.http.accept import wants_html
from bushel.server.options import ServerOptions

# The page is no secret; what it asks for needs a key like any other request.
_OPEN = frozenset({"/health", "/docs"})
_PAGE_FILES = "/page/"
# Where the manuals of Ollama and llama.cpp call `curl -d` without saying what they send.
_BY_CURL = ("/api/", "/completion", "/apply-template", "/tokenize", "/detokenize")
# Where some clients look whether anyone is there, by HEAD and without a key.
_PROBED = frozenset({"/", "/api/hello"})
_UPLOADS = frozenset({"/v1/files"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS = "GET, POST, DELETE, OPTIONS"
_HOST = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<name>[^\s:/\\?#@\[\]]+))(?::[0-9]{1,5})?")
# What containers call the machine they run on, and what machines of a network call themselves.
_NEAR = frozenset({"host.docker.internal", "gateway.docker.internal", "host.containers.internal"})
_NEAR_SUFFIX = ".local"
_EXPOSED = "x-request-id, request-id, retry-after"


class Hosts:
    """Names this server may be called by. An address needs no permission: only a name can be
    made to point here by someone else (DNS rebinding).

    Nobody on the internet can do that with a name of `_NEAR`: no public name server has them. On
    the same network somebody can. Where the server is reached by an address of that network, this
    gives them nothing that they do not have. On loopback it would, through a browser that they
    send here; so there such a name is for programs alone, and browsers are told apart by what they
    always send.
    """

    def __init__(self, options: ServerOptions):
        names = {"localhost", options.host, *options.allowed_hosts}
        self._all = "*" in names
        self._names = {_plain(name) for name in names if not name.startswith("*.")}
        self._suffixes = tuple(name[1:].lower() for name in names if name.startswith("*."))

    def check(self, headers: Headers, arrived_at: str = "") -> None:
        """arrived_at: the address of this machine that the request came to."""
        hosts = headers.getlist("host")
        if self._all or not hosts:  # a browser always sends one
            return
        name = _plain(hosts[0])
        good = bool(name) and (
            name in self._names
            or name.endswith(self._suffixes)
            or _is_address(name)
            or (_is_near(name) and _may_be_near(arrived_at, headers))
        )
        if len(hosts) > 1 or not good:
            raise ApiError(
                403,
                "This server does not answer to that Host. Start it with --allowed-host NAME.",
                code="host_not_allowed",
            )


def _plain(host: str) -> str:
    """A host without port, brackets and the root's dot; empty if it is none."""
    if _is_address(host):  # IPv6 without brackets, as a command line has it
        return host.lower()
    match = _HOST.fullmatch(host)
    return (match["six"] or match["name"]).lower().rstrip(".") if match else ""


def _is_near(name: str) -> bool:
    return name in _NEAR or name.endswith(_NEAR_SUFFIX)


def _may_be_near(arrived_at: str, headers: Headers) -> bool:
    try:
        address = ipaddress.ip_address(arrived_at.partition("%")[0])
    except ValueError:
        return False
    if address.is_loopback:
        return not _from_browser(headers)
    return address.is_private or address.is_link_local


def _from_browser(headers: Headers) -> bool:
    told = any(name in headers for name in ("origin", "referer", "sec-fetch-site"))
    return told or headers.get("user-agent", "").startswith("Mozilla/")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Origins:
    """Web pages that may call this server: none but its own, unless they are named."""

    def __init__(self, allowed: tuple[str, ...]):
        self._all = "*" in allowed
        self._allowed = {origin.rstrip("/").lower() for origin in allowed}

    def allows(self, origin: str) -> bool:
        return self._all or origin.lower() in self._allowed

    def check(self, method: str, headers: Headers) -> None:
        """Refuses what a foreign page sends and what may change something."""
        origin = headers.get("origin")
        if method in _SAFE or (origin is not None and self.allows(origin)):
            return
        foreign = headers.get("sec-fetch-site") == "cross-site"
        if origin is not None:
            own = origin.partition("://")[2].lower()
            foreign = not own or own != headers.get("host", "").lower()
        if foreign:
            raise ApiError(
                403,
                "Web pages of other sites may not call this server. Start it with "
                "--cors-origin ORIGIN to allow one.",
                code="origin_not_allowed",
            )

    def headers(self, origin: str | None) -> dict[str, str]:
        """What a browser must be told so that a page of `origin` may read the answer."""
        if origin is None or not self._allowed or not self.allows(origin):
            return {"vary": "origin"} if self._allowed else {}
        return {
            "access-control-allow-origin": "*" if self._all else origin,
            "access-control-expose-headers": _EXPOSED,
            "vary": "origin",
        }

    def preflight(self, headers: Headers) -> Response:
        origin = headers.get("origin", "")
        if not self.allows(origin):
            raise ApiError(403, "That origin is not allowed.", code="origin_not_allowed")
        answer = {
            **self.headers(origin),
            "access-control-allow-methods": _METHODS,
            "access-control-max-age": "600",
        }
        wanted = headers.get("access-control-request-headers")
        if wanted:
            answer["access-control-allow-headers"] = wanted
        if headers.get("access-control-request-private-network") == "true":
            answer["access-control-allow-private-network"] = "true"
        return Response(status_code=204, headers=answer)


def _check_type(method: str, path: str, headers: Headers) -> None:
    """Browsers send other types across sites without asking first."""
    if method != "POST":
        return
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind == "multipart/form-data" and path in _UPLOADS:
        return  # whose Origin has been looked at
    form = kind == "application/x-www-form-urlencoded"
    if form and path.startswith(_BY_CURL) and not _from_browser(headers):
        return
    is_json = kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
    if not is_json:
        raise ApiError(
            415, "Send the body as content-type application/json.", code="unsupported_media_type"
        )


def _is_open(path: str, method: str, headers: Headers) -> bool:
    """Whether anybody may ask this, without a key."""
    if method == "HEAD" and path in _PROBED:
        return True
    page = path.startswith(_PAGE_FILES) or (path == "/" and wants_html(headers))
    return path in _OPEN or (page and method in _SAFE)


class Access:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, options: ServerOptions):
        self._app = app
        self._keys = ApiKeys(options)
        self._hosts = Hosts(options)
        self._origins = Origins(options.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_background(scope):
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        reply = self._with_cors(headers.get("origin"), send)
        try:
            self._hosts.check(headers, (scope.get("server") or ("",))[0])
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                return await self._origins.preflight(headers)(scope, receive, send)
            self._check(scope, headers)
        except ApiError as error:
            return await refusal(scope, error)(scope, receive, reply)
        await self._app(scope, receive, reply)

    def _with_cors(self, origin: str | None, send: Send) -> Send:
        more = self._origins.headers(origin)
        if not more:
            return send

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(more)
            await send(message)

        return with_headers

    def _check(self, scope: Scope, headers: Headers) -> None:
        self._origins.check(scope["method"], headers)
        if self._keys and not _is_open(scope["path"], scope["method"], headers):
            self._keys.check(headers)
        _check_type(scope["method"], scope["path"], headers)
