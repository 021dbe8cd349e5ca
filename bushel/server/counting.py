"""Questions about tokens, on their way to the workers that also prepare requests.

They leave a worker free for requests wherever there are two, and owners take turns, so that neither
many of them nor ones whose clients have gone delay a reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bushel.core.wire import Decode, Encode, Prepare
from bushel.server.errors import ApiError
from bushel.server.processes.pool import Answer, Pool
from bushel.server.processes.turns import Turns


@dataclass(frozen=True)
class CountJob:
    """The message's id is the request's."""

    message: Prepare | Encode | Decode
    api: str  # "tokenize", "detokenize", "count_tokens"
    model: str
    owner: str


class Counting:
    """Belongs to the event loop."""

    def __init__(self, pool: Pool, workers: int):
        self._pool = pool
        self._free = max(1, workers - 1)
        self._waiting: Turns[asyncio.Future[None]] = Turns()  # while one waits, nothing is free

    async def ask(self, owner: str, message: Prepare | Encode | Decode) -> Answer:
        """ApiError if it is refused. Cancelling takes it out of the queue; what a worker has begun
        keeps its place until the worker is done with it.
        """
        await self._turn(owner)
        working = asyncio.ensure_future(self._pool.ask(message, owner, message.id))
        working.add_done_callback(self._done)
        return await asyncio.shield(working)

    async def _turn(self, owner: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(owner, "", turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had just come
                self._next()
            raise

    def _done(self, working: asyncio.Future[Answer]) -> None:
        if not working.cancelled():
            working.exception()  # whoever asked may be gone
        self._next()

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.take()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def check_ids(ids: Sequence[int], vocab: int) -> None:
    if ids and not 0 <= min(ids) <= max(ids) < vocab:
        raise ApiError(400, f"tokens must be integers below {vocab}.", param="tokens")
