"""Request bodies: read under limits, decoded as strict JSON, given to FastAPI as checked models.

A body that is large, or holds much, is decoded and checked in a thread, in slices; what an API
makes of it then goes there too (`aside`). The event loop only ever works on small ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from bushel.core.conversation import Conversation
from bushel.server.errors import ApiError
from bushel.server.http.body_memory import Bodies, Body
from bushel.server.http.content_encoding import decoder_of
from bushel.server.http.json_decode import decode
from bushel.server.options import Limits

# What the event loop does itself. Decoding so many lists takes 15 ms, and so many of the slowest
# fractions 55 ms; the largest recorded body of an agent (33 kB, 750 values) takes 0.6 ms.
_LIGHT_BYTES, _LIGHT_VALUES = 256 << 10, 4096
# A body that arrives more slowly than this, in bytes per second, is an attack or a dead link.
_SLOWEST = 16 << 10
# Each keeps the interpreter lock for up to 5 ms at a time; more of them only add up.
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="body")
T = TypeVar("T")


class _Read(Request):
    """A request whose body has been read, decoded and checked."""

    parsed: Any = None  # as JSON has it
    model: BaseModel | None = None
    heavy = False

    async def body(self) -> bytes:
        # FastAPI asks for it only to see whether there is one.
        return b"read"

    async def json(self) -> Any:
        return self.model


class JsonRoute(APIRoute):
    """A route whose body is JSON, or is refused in the API's own form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler
        model = cast(type[BaseModel], self.body_field.field_info.annotation)

        async def read_first(request: Request) -> Response:
            read = _Read(request.scope, request.receive, request._send)
            limits: Limits = request.app.state.limits
            bodies: Bodies = request.app.state.bodies
            with bodies.reading() as body:
                data = await read_body(request, limits, body)
                read.heavy = _heavy(data)
                read.parsed, read.model = await _aside(read, lambda: _checked(data, model, limits))
            return await handler(read)

        return read_first


def _heavy(data: bytes) -> bool:
    """Strings count too, which costs prose a detour now and then."""
    return len(data) > _LIGHT_BYTES or sum(map(data.count, (b",", b"[", b"{"))) > _LIGHT_VALUES


def _checked(data: bytes, model: type[BaseModel], limits: Limits) -> tuple[Any, BaseModel]:
    value = decode(data, limits)
    if isinstance(value, dict) and len(value) > limits.fields:
        raise ApiError(400, f"The body has more than {limits.fields} fields.", code="invalid_value")
    try:
        return value, model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise RequestValidationError([{**first, "loc": ("body", *first["loc"])}]) from None


# -- what the APIs make of a body --------------------------------------------------------------


def json_body(request: Request) -> Any:
    """The body as JSON has it."""
    return cast(_Read, request).parsed


async def aside(request: Request, work: Callable[[], T]) -> T:
    """Work on a request's body, where it keeps nobody waiting. It may not touch what belongs to
    the event loop.
    """
    return await _aside(cast(_Read, request), work)


async def _aside(request: _Read, work: Callable[[], T]) -> T:
    if not request.heavy:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


async def make_conversation(request: Request, make: Callable[[], Conversation]) -> Conversation:
    """What a body says to the model. The messages of a large one are encoded for the worker that
    gets them, since that takes time too.
    """

    def packed() -> Conversation:
        conversation, encode = make(), msgspec.msgpack.encode
        # One by one: encoding megabytes in one call keeps the interpreter lock for long.
        messages = [msgspec.Raw(encode(message)) for message in conversation["messages"]]
        return cast(Conversation, {**conversation, "messages": msgspec.Raw(encode(messages))})

    return await aside(request, packed if cast(_Read, request).heavy else make)


# -- reading -----------------------------------------------------------------------------------


async def read_body(request: Request, limits: Limits, body: Body) -> bytes:
    """All of a body, unpacked; 413 as soon as that is too long, 408 when it does not come, and 503
    while others take the memory for it.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limits.body_bytes):
        raise _too_large(limits)
    decoder = decoder_of(request.headers.get("content-encoding", ""))
    loop = asyncio.get_running_loop()
    start, arrived = loop.time(), 0
    try:
        async with asyncio.timeout(limits.read_seconds) as deadline:
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ApiError(400, "The body was cut off.", code="incomplete_body")
                data = message.get("body", b"")
                arrived += len(data)
                for piece in decoder.pieces(data):
                    body.add(piece)
                    if len(body.data) > limits.body_bytes:
                        raise _too_large(limits)
                    if len(piece) > len(data):  # it was packed, and there may be much of it
                        await asyncio.sleep(0)
                more = message.get("more_body", False)
                # As a whole it may take its time; between two pieces it may not.
                allowed = min(start + arrived / _SLOWEST, loop.time())
                deadline.reschedule(allowed + limits.read_seconds)
        decoder.finish()
    except TimeoutError:
        raise ApiError(408, "The body did not arrive in time.", code="body_timeout") from None
    return bytes(body.data)


def _too_large(limits: Limits) -> ApiError:
    return ApiError(
        413, f"The body is larger than {limits.body_bytes} bytes.", code="body_too_large"
    )
