"""The HTTP server itself: uvicorn, with the limits on a connection that it does not have.

    new ──> header ──> body ──> answer ──> idle ──> header ...
              │         │
              └─────────┴─ refused, or answered before all of it came ──> ending

    state    waits for             for how long, and for how much
    new      the first byte        read_seconds
    header   the header's end      read_seconds; header_bytes, _MOST_HEADERS
    body     the body's end        read_seconds from its last byte, and a rate (`request_body`);
                                   body_bytes, and what chunks may cost (`_framing_allowed`)
    answer   our own words         no limit: the silence is ours, and a client that leaves is seen;
                                   what it sends ahead is kept as it is, header_bytes of it; after
                                   more, or after a fault, this answer is the last, unless it has
                                   begun: then it is broken off
    idle     the next request      idle_seconds
    ending   the client to leave   read_seconds, _LINGER_SECONDS if refused; body_bytes, unread

A client that does not take a byte of its answer for write_seconds is cut off in every state.
Nothing here belongs to one request, and everything happens on the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, Literal, cast

import httptools
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from bushel.server.error_response import refusal_bytes
from bushel.server.errors import ApiError
from bushel.server.http.sse import BODY, Held
from bushel.server.observability.refusals import refusals
from bushel.server.options import Limits, ServerOptions

# Who is refused before its request was read has so long to take the answer, at most.
_LINGER_SECONDS = 2.0
# What the system keeps of a reply. Left alone it grows to megabytes for a client that does not
# read, and a slow reader's progress shows only when a third of it has gone.
_SEND_BYTES = 128 << 10
# Nobody pipelines but attackers and tests.
_MOST_PIPELINED = 16
# Looking one up takes time for each of them. Browsers behind proxies send some 40.
_MOST_HEADERS = 256
# A chunk costs the loop 1 us, whatever is in it: one byte each, 9 MB/s of them were all it could
# do. Framing may be so much of a body, beside a first piece that suits any client: chunks of 80
# bytes are never too small, and 13,000 of one byte are not too many.
_FRAMING_SHARE = 1 / 16
_LEAST_FRAMING = 5  # "1\r\n" and "\r\n"

State = Literal["new", "header", "body", "answer", "idle", "ending"]

_MALFORMED = ApiError(400, "This is not an HTTP request.", code="malformed_http")
_LARGE_HEADER = ApiError(431, "The request's header is too large.", code="header_too_large")
_FRAMING = ApiError(
    400,
    "The body comes in too many small chunks, or with long extensions or trailers. Send it in "
    "larger chunks, or with a Content-Length.",
    code="excessive_framing",
)
_FULL = ApiError(
    503, "Too many connections are open. Try again.", code="too_many_connections", retry_after=1
)


class _Refused(Exception):
    """Raised inside the parser to leave it."""


class _Transport:
    """A connection's transport as uvicorn sees it: the connection decides how it is closed."""

    def __init__(self, transport: asyncio.Transport, connection: Connection):
        self._transport = transport
        self._connection = connection
        self.write = transport.write
        self.abort = transport.abort
        self.get_extra_info = transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size

    def is_closing(self) -> bool:
        return self._connection.state == "ending" or self._transport.is_closing()

    def close(self) -> None:
        """Closing on unread bytes destroys the answer on its way."""
        if self._connection.more_may_come:
            self._connection.end(self._connection.limits.read_seconds)
        else:
            self._transport.close()
            self._connection.expect_reader_of_the_rest()

    def write_eof(self) -> None:
        if not self._transport.is_closing():
            self._transport.write_eof()


class ChunkedBody:
    """An `sse.StreamBody`. What uvicorn's `send` does with a piece of a body, without waiting."""

    def __init__(self, connection: Connection, transport: asyncio.Transport):
        self._connection = connection
        self._transport = transport

    @property
    def paused(self) -> bool:
        return self._connection.flow.write_paused

    def write(self, payload: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"%x\r\n%b\r\n" % (len(payload), payload))

    def follow(self, source: Held | None) -> None:
        self._connection.source = source
        if source is not None and self.paused:
            source.hold()


class Connection(HttpToolsProtocol):
    """One client's connection.

    phase: what the parser's next bytes belong to; "ended": to nothing; "last": to nothing, and
    what was asked for before is still answered.
    """

    def __init__(self, *args: Any, limits: Limits, **named: Any):
        super().__init__(*args, **named)
        self.limits = limits
        self._phase: Literal["between", "header", "body", "last", "ended"] = "between"
        self._refusal = _MALFORMED
        self._running: RequestResponseCycle | None = None
        self._wire: asyncio.Transport
        self.source: Held | None = None  # of what is written while a client reads
        self._ahead = bytearray()  # sent while an earlier request is answered
        self._timed: State | None = None  # whose timer runs
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._linger = _LINGER_SECONDS
        self._discarded = 0
        # Of the request whose bytes come:
        self._unparsed = 0
        self._header_bytes = 0
        self._chunked = False
        self._body_bytes = 0  # as they came
        self._payload = 0  # and what they hold
        self._pieces = 0
        self._began = False  # in the bytes that are being parsed
        self._keep_alive = False

    # -- states and their timers -----------------------------------------------------------------

    @property
    def state(self) -> State:
        if self._phase == "ended":
            return "ending"
        if self._phase == "body" and self.cycle is self._running:
            return "body"
        if self._running is not None and not self._running.response_complete:
            return "answer"
        if self._phase == "header":
            return "header"
        return "new" if self._running is None else "idle"

    @property
    def more_may_come(self) -> bool:
        """Of what belongs to no request that can still be answered."""
        return self.state == "body" or self._phase == "last"

    def _settle(self) -> None:
        """To be called whenever the state may have changed."""
        state = self.state
        if state == self._timed:
            return
        self._timed = state
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = {
            "new": self.limits.read_seconds,
            "header": self.limits.read_seconds,
            "idle": self.limits.idle_seconds,
            "ending": self._linger,
        }.get(state)
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        self._timer = None
        if self.state == "idle":  # it may still be reading the end of its last answer
            self.transport.close()
        else:
            self.transport.abort()

    def check_integrity(self) -> None:
        """Every state has its timer, or a reason to have none."""
        state = self.state
        assert state == self._timed, (state, self._timed)
        if self._wire.is_closing():
            assert self._writing is not None or not self._wire.get_write_buffer_size()
            return
        if state in ("new", "header", "idle", "ending"):
            assert self._timer is not None, state
        assert not self._ahead or state == "answer"
        assert len(self._ahead) <= self.limits.header_bytes
        assert not self.flow.read_paused or state == "body"

    # -- bytes come -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wire, self.transport = transport, cast(asyncio.Transport, _Transport(transport, self))
        # macOS refuses it once the client has reset; raised from here, uvloop would drop the
        # transport without `connection_lost`, and the place would stay taken.
        with suppress(OSError):
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES
            )
        if len(self.connections) > self.limits.connections:
            self._refuse(_FULL)
        self._settle()

    def data_received(self, data: bytes) -> None:
        state = self.state
        if state == "ending" or self._phase == "last":
            self._discarded += len(data)
            if self._discarded > self.limits.body_bytes:
                self.transport.abort()
        elif state == "answer":
            self._ahead += data
            if len(self._ahead) > self.limits.header_bytes:
                self._end_after_answers()
        elif not self.transport.is_closing():
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        before, self._began = self._phase, False
        try:
            rest: bytes | None = data
            while rest is not None:
                rest = self._feed(rest)
        except httptools.HttpParserError:
            self._refuse(self._refusal)
            self._settle()
            return
        if before != "body" and self._phase == "header":
            # The parser keeps an unfinished header to itself, however long it is.
            self._unparsed += len(data)
            if self._unparsed > self.limits.header_bytes:
                self._refuse(_LARGE_HEADER)
        if self._phase == "body":
            self._body_bytes = self._payload if self._began else self._body_bytes + len(data)
            if self._chunked and self._body_bytes - self._payload > self._framing_allowed:
                self._refuse(_FRAMING)
        if self.state == "answer" and not self.transport.is_closing():
            # So that a client that leaves is seen.
            self.flow.resume_reading()
        self._settle()

    def _feed(self, data: bytes) -> bytes | None:
        """Clients may ask for other protocols in vain. The parser takes all that follows for
        another protocol's; a new one is given the header again, without that wish, and what
        follows. (The old one has seen it: after `Connection: close` it would take no more.)
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            header = self._header_again()
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
            return header + data[upgrade.args[0] :]
        return None

    def _header_again(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() != b"upgrade")
            lines.append(b"%s: %s" % (name, value))
        return b"\r\n".join([*lines, b"", b""])

    # -- what the parser finds ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = "header"
        self._unparsed = self._header_bytes = 0
        self._chunked = False

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == "body":
            return  # A trailer: nobody is to mistake it for a header.
        super().on_header(name, value)
        self._chunked = self._chunked or name.lower() == b"transfer-encoding"
        self._count_header(len(name) + len(value) + 4)

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.limits.header_bytes or len(self.headers) > _MOST_HEADERS:
            self._refusal = _LARGE_HEADER
            raise _Refused

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise _Refused
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise _Refused
            return
        super().on_headers_complete()
        self._phase, self._began = "body", True
        self._payload = self._pieces = 0
        # Who is answered before all of its request came is told that this ends the connection.
        self._keep_alive, self.cycle.keep_alive = self.cycle.keep_alive, False

    @property
    def _framing_allowed(self) -> float:
        return self.limits.header_bytes + self._payload * _FRAMING_SHARE

    def on_body(self, body: bytes) -> None:
        self._payload += len(body)
        self._pieces += 1
        if self._chunked and self._pieces * _LEAST_FRAMING > self._framing_allowed:
            self._refusal = _FRAMING
            raise _Refused
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._phase != "body":
            return  # of a request for another protocol, which comes again
        super().on_message_complete()
        self._phase = "between"
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive

    # -- an answer must be taken -------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.source is not None:
            self.source.hold()
        self._expect_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.source is not None:
            self.source.release()
        if not self.transport.is_closing():
            self._stop_writing()

    def _expect_reader(self) -> None:
        self._stop_writing()
        left = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(self.limits.write_seconds, self._check_reader, left)

    def expect_reader_of_the_rest(self) -> None:
        if self.transport.get_write_buffer_size():
            self._expect_reader()

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

    # -- ends --------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cast(Scope, cycle.scope)["extensions"] = {BODY: ChunkedBody(self, self._wire)}
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()  # "idle" has a timer of its own
        if self._ahead and self.state != "answer" and not self.transport.is_closing():
            data, self._ahead = bytes(self._ahead), bytearray()
            self._parse(data)
        self._settle()

    def shutdown(self) -> None:
        self._keep_alive = False
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._writing):
            if timer is not None:
                timer.cancel()
        # uvicorn tells the request that came last; the one that runs may be an earlier one.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def _refuse(self, error: ApiError) -> None:
        """Answer and end, whatever else comes."""
        state, running = self.state, self._running
        if state == "answer":
            self._end_after_answers()
            return
        if state == "body" and running is not None:
            if running.response_started:
                self.transport.abort()  # in the middle of an answer
                return
            running.disconnected = True  # nothing it says is sent
            running.message_event.set()
        # It has no address before the first request.
        url = getattr(self, "url", b"")
        error.told = False  # these are the same for everybody
        refusals.tell(error, url.decode("latin-1"), self.client[0] if self.client else None)
        payload = refusal_bytes(url, error)
        headers = {
            **error.headers,
            "content-type": "application/json",
            "content-length": str(len(payload)),
            "connection": "close",
        }
        lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + payload)
        self.end(min(_LINGER_SECONDS, self.limits.read_seconds))

    def _end_after_answers(self) -> None:
        """Read no more; what was asked for in whole is answered, unless an answer has begun."""
        assert self._running is not None
        if self._running.response_started:
            self.transport.abort()
            return
        if self._phase == "body":  # the rest of that one will not be read
            self.pipeline.popleft()
        self.cycle = self.pipeline[0][0] if self.pipeline else self._running
        self.cycle.keep_alive = False
        self._phase = "last"
        self._ahead.clear()
        self.flow.resume_reading()  # so that a client that leaves is seen

    def end(self, linger: float) -> None:
        """Say no more, and read on for a while: nothing is parsed or kept."""
        self._phase, self._linger = "ended", linger
        self.transport.write_eof()
        self.flow.resume_reading()
        self._settle()


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
        )
    )
