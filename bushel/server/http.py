"""The HTTP server itself: uvicorn, with the limits on a connection that it does not have.

    bytes ─> header: read_seconds, header_bytes ─> body: `server.body` ─> reply: write_seconds
             │                                                            │
             idle connections end by uvicorn's keep-alive time-out        no byte taken: cut

Nothing here belongs to one request, and everything happens on the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Literal, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from bushel.server.errors import ApiError
from bushel.server.openai.errors import error_headers
from bushel.server.options import Limits, ServerOptions
from bushel.server.refusals import refusal_bytes

# Longer than proxies and clients keep an idle connection, so that they are the ones to close it:
# a server that closes first loses the request that is on its way (nginx: 60 s).
_IDLE_SECONDS = 75
_LINGER_SECONDS = 2.0
# What the system keeps of a reply. Left alone it grows to megabytes for a client that does not
# read, and a slow reader's progress shows only when a third of it has gone.
_SEND_BYTES = 128 << 10
# Nobody pipelines but attackers and tests.
_MOST_PIPELINED = 16

_MALFORMED = ApiError(400, "This is not an HTTP request.", code="malformed_http")
_LARGE_HEADER = ApiError(431, "The request's header is too large.", code="header_too_large")
_FULL = ApiError(
    503, "Too many connections are open. Try again.", code="too_many_connections", retry_after=1
)


class _Refused(Exception):
    """Raised inside the parser to leave it."""


class Connection(HttpToolsProtocol):
    """One client's connection.

    phase: what its next bytes belong to; "refused": to nothing.
    """

    def __init__(self, *args: Any, limits: Limits, **named: Any):
        super().__init__(*args, **named)
        self._limits = limits
        self._phase: Literal["idle", "header", "body", "refused"] = "idle"
        self._refusal = _MALFORMED
        self._header_bytes = 0
        self._discarded = 0
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None

    # -- a header must come, soon and not too long -------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES
        )
        if len(self.connections) > self._limits.connections:
            self._refuse(_FULL)
        else:
            self._expect_bytes()

    def data_received(self, data: bytes) -> None:
        if self._phase == "refused" or self.transport.is_closing():
            return
        before = self._phase
        if before == "idle" and self._reading is None:
            self._expect_bytes()
        super().data_received(data)
        if before in ("idle", "header"):
            self._header_bytes += len(data)
        # The parser keeps an unfinished header to itself, however long it is.
        if self._phase == "header" and self._header_bytes > self._limits.header_bytes:
            self._refuse(_LARGE_HEADER)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = "header"
        self._header_bytes = 0

    def on_headers_complete(self) -> None:
        self._phase = "body"
        self._stop_reading()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.header_bytes:
            self._refusal = _LARGE_HEADER
            raise _Refused
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise _Refused
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._phase = "idle"
        self._stop_reading()

    def _expect_bytes(self) -> None:
        self._stop_reading()
        self._reading = self.loop.call_later(self._limits.read_seconds, self._too_slow)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _too_slow(self) -> None:
        self._reading = None
        if not self._answering:
            self.transport.abort()

    @property
    def _answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    # -- an answer must be taken -------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_writing()

    def _expect_reader(self) -> None:
        self._stop_writing()
        left = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(self._limits.write_seconds, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        """While writing is paused or closing, nothing is added: what shrinks is being read.

        A reader is slow at a third of `_SEND_BYTES` in `write_seconds`, and below that gone.
        """
        self._writing = None
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        elif left:
            self._expect_reader()

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._expect_reader()
        if self._phase == "body":
            self._expect_bytes()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            self._expect_reader()

    # -- a body nobody wants -----------------------------------------------------------------

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        # Answered before it was read, as a 413 is. Closing at once would destroy the answer on
        # its way; reading on without end would be a gift.
        if self.cycle.response_complete:
            self._discarded += len(body)
            if self._discarded > self._limits.body_bytes:
                self.transport.abort()

    # -- ends --------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_reading()
        self._stop_writing()
        # uvicorn tells the request that came last; the one that runs may be an earlier one.
        if self._running is not None and self._answering:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal)

    def _unsupported_upgrade_warning(self) -> None:
        """Clients may ask for other protocols in vain; that is no news."""

    def _refuse(self, error: ApiError) -> None:
        """Answer and end, but read on for a while: closing on unread bytes destroys the answer."""
        unread, self._phase = self._phase == "body", "refused"
        if self._running is not None and self._answering:
            if not unread or self._running is not self.cycle or self._running.response_started:
                self.transport.abort()  # in the middle of another answer
                return
            self._running.disconnected = True  # nothing it says is sent
            self._running.message_event.set()
        # It has no address before the first request.
        payload = refusal_bytes(getattr(self, "url", b""), error)
        headers = {
            **error_headers(error),
            "content-type": "application/json",
            "content-length": str(len(payload)),
            "connection": "close",
        }
        lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + payload)
        self.transport.write_eof()
        self._stop_reading()
        self._reading = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)


class Server(uvicorn.Server):
    """Signals are the caller's: set `should_exit` to end it."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def make_server(app: ASGIApp, options: ServerOptions) -> Server:
    """`await make_server(...).serve(sockets=[...])`, or without sockets on the options' address."""
    connection = functools.partial(Connection, limits=options.limits)
    return Server(
        uvicorn.Config(
            app,
            host=options.host,
            port=options.port,
            http=cast(Any, connection),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
        )
    )
