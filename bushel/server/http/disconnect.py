"""Whether the client is still there.

async with present(receive):      # ClientGone as soon as it is not
    ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class ClientGone(Exception):
    """The client closed its connection; whatever was done for it has been cancelled."""


class present:
    """Cancels its block, wherever that waits, when the client disconnects (B47).

    The request's body must have been read: what is received here is thrown away.
    """

    def __init__(self, receive: Receive):
        self._receive = receive
        self._gone = False

    async def __aenter__(self) -> present:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watcher.cancel()
        # Somebody else's cancellation, a shutdown say, is not ours to swallow.
        ours = self._gone and self._task.uncancel() <= self._cancelling
        if ours and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise ClientGone from error

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._task.cancel()


class Awaited(Response):
    """A JSON reply that is worked out when it is sent, and given up when the client goes (B47)."""

    def __init__(self, work: Callable[[], Awaitable[BaseModel]]):
        super().__init__()
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with present(receive):
                payload = (await self._work()).model_dump_json()
        except ClientGone:
            return
        await Response(payload, media_type="application/json")(scope, receive, send)
