"""Server-sent events: batches as they come, comments while nothing does.

A batch is written to its connection as soon as it is there, in the same turn of the event loop;
ASGI's `send` would need a task's turn for that. There is no buffer. While a client does not read,
its connection holds the source of batches, which adds up what happens meanwhile. A client that
takes nothing for too long is disconnected by the connection itself (`http.connection`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from starlette.types import Scope, Send

Batch = TypeVar("Batch")
Given = TypeVar("Given", covariant=True)
BODY = "bushel.body"  # the ASGI extension that is a `StreamBody`
KEEPALIVE = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    # nginx would collect the events otherwise.
    "x-accel-buffering": "no",
}


class Framing(NamedTuple):
    """A form of streams. waiting: what says that somebody is there, before there is a reply."""

    headers: Mapping[str, str]
    waiting: bytes


EVENTS = Framing(HEADERS, KEEPALIVE)


def data(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


async def start(send: Send, headers: Mapping[str, str]) -> None:
    pairs = [(key.encode(), value.encode("latin-1")) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": pairs})


async def body(send: Send, payload: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": payload, "more_body": more})


class LateHead:
    """A stream that may have to begin before there is anything to say: after so many seconds its
    header is sent, and a sign of life as often. None: it waits.
    """

    def __init__(self, send: Send, seconds: float | None, framing: Framing = EVENTS):
        self.sent = False
        self._send = send
        self._seconds = seconds
        self._framing = framing
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LateHead:
        if self._seconds is not None:
            self._task = asyncio.create_task(self._wait(self._seconds))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Somebody else writes from now on."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _wait(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            if not self.sent:
                self.sent = True
                await start(self._send, self._framing.headers)
            await body(self._send, self._framing.waiting)


class Held(Protocol):
    """What can be told to wait."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class Source(Held, Protocol[Given]):
    """What a stream is made of."""

    async def deliver(self, read: Callable[[Given], None]) -> None:
        """Call `read` with every batch; none while it is held."""


class StreamBody(Protocol):
    """The body of an answer whose header has been sent."""

    @property
    def paused(self) -> bool:
        """Whether the client does not read: nothing is to be written."""

    def write(self, payload: bytes) -> None:
        """As one chunk, at once, to a client that is still there."""

    def follow(self, source: Held | None) -> None:
        """Whom to hold while the client does not read; None: nobody any more."""


class KeepaliveTimer:
    """Calls `expired` when nothing was written for so many seconds.

    One timer per period and not one per batch: where a token comes every few milliseconds that was
    a third of what a chunk costs.
    """

    def __init__(self, seconds: float, expired: Callable[[], None]):
        self._seconds = seconds
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self.restart()
        self._timer = self._loop.call_later(seconds, self._look)

    def restart(self) -> None:
        self._since = time.monotonic()  # the loop's clock takes a lock

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        left = self._since + self._seconds - time.monotonic()
        if left <= 0:
            self._expired()
            self.restart()
            left = self._seconds
        self._timer = self._loop.call_later(left, self._look)


async def relay(
    scope: Scope,
    source: Source[Batch],
    write: Callable[[Batch], bytes],
    seconds: float,
    keepalive: Callable[[], bytes] = lambda: KEEPALIVE,
) -> None:
    """Write every batch to the client as one chunk; a keep-alive whenever `seconds` bring none
    (B54).
    """
    body: StreamBody = scope["extensions"][BODY]

    def silence() -> None:
        if not body.paused:
            body.write(keepalive())

    def read(batch: Batch) -> None:
        timer.restart()
        if payload := write(batch):
            body.write(payload)

    timer = KeepaliveTimer(seconds, silence)
    body.follow(source)
    try:
        await source.deliver(read)
    finally:
        body.follow(None)
        timer.close()
