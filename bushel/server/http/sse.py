"""Server-sent events: batches as they come, comments while nothing does.

There is no buffer here. While a client does not read, `send` waits, nobody asks for the next
batch, and whoever makes them adds up what happens meanwhile. A client that takes nothing for
too long is disconnected by the connection itself (`http.connection`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sized
from typing import Protocol, TypeVar

from starlette.types import Send

Batch = TypeVar("Batch", bound=Sized, covariant=True)
KEEPALIVE = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    # nginx would collect the events otherwise.
    "x-accel-buffering": "no",
}


def data(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


async def start(send: Send, headers: Mapping[str, str]) -> None:
    pairs = [(key.encode(), value.encode("latin-1")) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": pairs})


async def body(send: Send, payload: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": payload, "more_body": more})


class Batches(Protocol[Batch]):
    """What a stream is made of. A batch that is not empty has something to tell."""

    async def __anext__(self) -> Batch: ...

    def interrupt(self) -> None:
        """Whoever waits for the next batch gets an empty one."""


class KeepaliveTimer:
    """Calls `expired` when something has been waited for, for so many seconds.

    One timer per period and not one per wait: where a token comes every few milliseconds that was
    a third of what a chunk costs.
    """

    def __init__(self, seconds: float, expired: Callable[[], None]):
        self._seconds = seconds
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None  # None: nobody waits
        self._timer = self._loop.call_later(seconds, self._look)

    def begin(self) -> None:
        self._since = time.monotonic()  # the loop's clock takes a lock

    def end(self) -> None:
        self._since = None

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = time.monotonic()
        left = self._seconds if self._since is None else self._since + self._seconds - now
        if left <= 0:
            self._expired()
            left = self._seconds
        self._timer = self._loop.call_later(left, self._look)


async def relay(
    send: Send,
    batches: Batches[Batch],
    write: Callable[[Batch], bytes],
    seconds: float,
    keepalive: Callable[[], bytes] = lambda: KEEPALIVE,
) -> None:
    """Send what is written of every batch as one message; a keep-alive whenever `seconds` bring no
    batch (B54).
    """
    timer = KeepaliveTimer(seconds, batches.interrupt)
    try:
        while True:
            timer.begin()
            batch = await anext(batches)
            timer.end()
            payload = write(batch) if batch else keepalive()
            if payload:
                await body(send, payload)
    except StopAsyncIteration:
        return
    finally:
        timer.close()
