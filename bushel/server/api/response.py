"""From jobs to an HTTP response, streamed or whole, in whatever form a writer gives it.

The status line is sent when the engine has accepted everything; until then an error has a status
of its own, and later it is an event of the stream. A stream whose model has to be loaded first
begins with comments, so that nobody takes it for dead.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bushel.core import Event
from bushel.server.errors import ApiError, internal_error
from bushel.server.http import sse
from bushel.server.http.disconnect import ClientGone, present
from bushel.server.service.job import GenerationJob
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service

logger = logging.getLogger(__name__)


class WholeWriter(Protocol):
    """One API's form of one reply."""

    def fold(self, events: Sequence[Event]) -> None:
        """Keep events for `whole`."""

    def whole(self) -> bytes:
        """The reply as one JSON object."""


class Writer(WholeWriter, Protocol):
    """Of a reply that may be a stream: either `fold` and `whole` are called, or the others."""

    def begin(self) -> bytes:
        """What a stream starts with."""

    def write(self, events: Sequence[Event]) -> bytes:
        """The chunks for some events; may be empty."""

    def end(self) -> bytes:
        """What follows the last event, to the end of the stream."""

    def keepalive(self) -> bytes:
        """What is sent when there is nothing to say, in a form that its clients accept (B54)."""

    def failed(self, error: ApiError) -> bytes:
        """What ends a stream that fails, so that nobody takes it for a success (B48a)."""


class WholeResponse(Response):
    """Opens its jobs when it is sent, and ends them when the client goes (B47)."""

    def __init__(
        self,
        service: Service,
        jobs: Sequence[GenerationJob],
        writer: Callable[[MultiTicket], Awaitable[WholeWriter]],
    ):
        super().__init__()
        self._service = service
        self._jobs = jobs
        self._folder = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        except ClientGone:
            return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with present(receive), MultiTicket(self._service, self._jobs) as answer:
            scope["state"]["request_id"] = answer.id
            writer = await self._folder(answer)
            await answer.deliver(writer.fold)
            payload = writer.whole()
        headers = {"x-request-id": answer.id}
        response = Response(payload, headers=headers, media_type="application/json")
        await response(scope, receive, send)


class ApiResponse(WholeResponse):
    """The same, or a stream."""

    def __init__(
        self,
        service: Service,
        jobs: Sequence[GenerationJob],
        writer: Callable[[MultiTicket], Awaitable[Writer]],
        *,
        stream: bool,
        failed: Callable[[ApiError], bytes],
        refused: Callable[[ApiError], bytes | None] | None = None,
        framing: sse.Framing = sse.EVENTS,
    ):
        """failed: what ends a stream of which nothing but comments was sent. refused: the whole
        stream of a request that is refused, where the API has such. framing: of a stream.
        """
        super().__init__(service, jobs, writer)
        self._failed = failed
        self._writer = writer
        self._stream = stream
        self._refused = refused
        self._framing = framing

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._stream:
            await self._send_stream(scope, receive, send)
        else:
            await super()._answer(scope, receive, send)

    async def _send_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer: Writer | None = None
        seconds = self._service.options.keepalive_seconds
        headers = self._framing.headers
        late = seconds if self._service.loading else None
        head = sse.LateHead(send, late, self._framing)
        try:
            async with present(receive), head, MultiTicket(self._service, self._jobs) as answer:
                scope["state"]["request_id"] = answer.id
                made = await self._writer(answer)
                await head.end()
                if not head.sent:
                    await sse.start(send, {**headers, "x-request-id": answer.id})
                writer = made
                await sse.body(send, writer.begin())
                await sse.relay(scope, answer, writer.write, seconds, writer.keepalive)
                last = writer.end()
        except ClientGone:
            raise
        except ApiError as error:
            if writer is not None:
                last = writer.failed(error)
            elif head.sent:
                last = self._failed(error)
            else:
                refusal = self._refused(error) if self._refused else None
                if refusal is None:
                    raise
                await sse.start(send, headers)
                last = refusal
        except Exception:
            if writer is None and not head.sent:
                raise
            request_id = scope["state"]["request_id"]
            logger.exception("Request %s failed while streaming.", request_id)
            failed = self._failed if writer is None else writer.failed
            last = failed(internal_error(request_id))
        # Nothing runs any more: a client that goes now loses nothing and aborts nothing.
        await sse.body(send, last, more=False)
