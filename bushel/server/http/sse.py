"""Server-sent events: batches of bytes as they come, comments while nothing does.

There is no buffer here. While a client does not read, `send` waits, nobody asks for the next
batch, and whoever makes them adds up what happens meanwhile. A client that takes nothing for
too long is disconnected by the connection itself (`http.connection`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.types import Send

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


class KeepaliveTimer:
    """Interrupts its task when that has waited for so many seconds.

    As `asyncio.timeout` does, but with one timer per period and not one per wait: where a token
    comes every few milliseconds that was a third of what a chunk costs.
    """

    def __init__(self, seconds: float):
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None  # None: it does not wait
        self._interrupted = False
        self._timer = self._loop.call_later(seconds, self._look)

    async def wait(self, batches: AsyncIterator[bytes]) -> bytes | None:
        """The next batch; None if none came in time."""
        self._since = self._loop.time()
        try:
            return await anext(batches)
        except asyncio.CancelledError:
            # Somebody else may have cancelled the task in the same moment.
            if not self._interrupted or self._task.uncancel() > self._cancelling:
                raise
            self._interrupted = False
            return None
        finally:
            self._since = None

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        left = self._seconds if self._since is None else self._since + self._seconds - now
        if left <= 0:
            self._interrupted = True
            self._task.cancel()
            left = self._seconds
        self._timer = self._loop.call_later(left, self._look)


async def relay(
    send: Send,
    batches: AsyncIterator[bytes],
    seconds: float,
    keepalive: Callable[[], bytes] = lambda: KEEPALIVE,
) -> None:
    """Send every batch as one message; a keep-alive whenever `seconds` bring none (B54).

    `batches` must not mind when waiting for its next one is cancelled and begun again, which
    an async generator does: it must be an object with a `__anext__` of its own.
    """
    silence = KeepaliveTimer(seconds)
    try:
        while True:
            payload = await silence.wait(batches)
            if payload != b"":
                await body(send, keepalive() if payload is None else payload)
    except StopAsyncIteration:
        return
    finally:
        silence.close()
