"""Whether the client is still there.

async with present(receive):      # ClientGone as soon as it is not
    ...
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from starlette.types import Receive


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
