"""Request bodies: read under limits, decoded as strict JSON, given to FastAPI as plain objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from bushel.server.bodies import Bodies, Body
from bushel.server.errors import ApiError
from bushel.server.options import Limits

# Decoding 1 MB, or checking so many values, takes about 2 ms, the longest that the event loop
# should be busy with one thing.
_IN_A_THREAD = 1 << 20
_MANY_VALUES = 1 << 14
# A body that arrives more slowly than this, in bytes per second, is an attack or a dead link.
_SLOWEST = 16 << 10
# Three bytes ("[],") become 64 in memory. More commas and brackets than this need 100 MB of prose.
_MOST_VALUES = 1 << 22
# What msgpack can carry to a worker.
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


class _Read(Request):
    """A request whose body has been read and decoded."""

    parsed: Any = None

    async def body(self) -> bytes:
        # FastAPI asks for it only to see whether there is one.
        return b"read"

    async def json(self) -> Any:
        return self.parsed


class JsonRoute(APIRoute):
    """A route whose body is JSON, or is refused in the API's own form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler

        async def read_first(request: Request) -> Response:
            read = _Read(request.scope, request.receive, request._send)
            read.parsed = await _parsed(request)
            return await handler(read)

        return read_first


async def _parsed(request: Request) -> Any:
    limits: Limits = request.app.state.limits
    bodies: Bodies = request.app.state.bodies
    with bodies.reading() as body:
        data = await read_body(request, limits, body)
        if len(data) > _IN_A_THREAD or data.count(b",") > _MANY_VALUES:
            return await asyncio.to_thread(decode, data, limits.depth)
        return decode(data, limits.depth)


async def read_body(request: Request, limits: Limits, body: Body) -> bytes:
    """All of a body; 413 as soon as it is too long, 408 when it does not come, and 503 while
    others take the memory for it.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limits.body_bytes):
        raise _too_large(limits)
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        async with asyncio.timeout(limits.read_seconds) as deadline:
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ApiError(400, "The body was cut off.", code="incomplete_body")
                body.add(message.get("body", b""))
                more = message.get("more_body", False)
                if len(body.data) > limits.body_bytes:
                    raise _too_large(limits)
                # As a whole it may take its time; between two pieces it may not.
                allowed = min(start + len(body.data) / _SLOWEST, loop.time())
                deadline.reschedule(allowed + limits.read_seconds)
    except TimeoutError:
        raise ApiError(408, "The body did not arrive in time.", code="body_timeout") from None
    return bytes(body.data)


def _too_large(limits: Limits) -> ApiError:
    return ApiError(
        413, f"The body is larger than {limits.body_bytes} bytes.", code="body_too_large"
    )


def decode(data: bytes, depth: int) -> Any:
    """JSON as plain objects; NaN, infinity, broken UTF-8 and half surrogates are errors."""
    openings = data.count(b"[") + data.count(b"{")
    if openings + data.count(b",") > _MOST_VALUES:
        raise ApiError(413, "The body holds too many values.", code="body_too_large")
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise _too_deep(depth) from None
    except UnicodeDecodeError:
        raise _malformed("it is not valid UTF-8") from None
    except msgspec.DecodeError as error:  # says where, and never what
        raise _malformed(str(error)) from None
    _check_values(value, depth)
    return value


def _malformed(why: str) -> ApiError:
    return ApiError(400, f"The body is not JSON: {why}.", code="invalid_json")


def _too_deep(depth: int) -> ApiError:
    return ApiError(400, f"The body is nested deeper than {depth} levels.", code="invalid_json")


def _check_values(value: Any, depth: int) -> None:
    """Neither too deep, nor with an integer that the processes cannot tell each other."""
    level: list[Any] = [[value]]
    for _ in range(depth + 1):
        inside = [
            it for outer in level for it in (outer.values() if type(outer) is dict else outer)
        ]
        whole = [it for it in inside if type(it) is int]
        if whole and (min(whole) < _LEAST or max(whole) > _MOST):
            raise _malformed("it holds an integer of more than 64 bits")
        level = [it for it in inside if type(it) is dict or type(it) is list]
        if not level:
            return
    raise _too_deep(depth)
