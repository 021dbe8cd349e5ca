"""Requests for tokens and not for text: `/tokenize`, `/detokenize`, `count_tokens`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bushel.core.awake_clock import awake
from bushel.core.wire import Decode, DecodedText, Made
from bushel.server import errors
from bushel.server.counting import Counting, CountJob, check_ids
from bushel.server.observability.request_record import Record
from bushel.server.options import ServerOptions
from bushel.server.processes.pool import Pool
from bushel.server.service.requests import Requests


class TokenCounts:
    """Belongs to the event loop."""

    def __init__(self, options: ServerOptions, requests: Requests, pool: Pool):
        self._options = options
        self._requests = requests
        self._pool = pool
        self._counting = Counting(pool, options.workers)
        self._calls = itertools.count()

    async def count(self, job: CountJob) -> Made | DecodedText:
        """Admitted, recorded and given up like any other request (B47)."""
        named = job.message.id, job.api, job.model, False, 0, awake()
        record = Record(*named, job.owner)
        self._requests.admit(record)
        async with self._requests.on_its_way(record, self._options.timeout):
            if isinstance(job.message, Decode):
                check_ids(job.message.ids, (await self._pool.known()).vocab)
            made, _ = await self._counting.ask(job.owner, job.message)
            if record.cancelled:
                raise errors.cancelled()
            assert isinstance(made, Made | DecodedText)
            asked = made if isinstance(made, Made) else job.message
            record.prompt_tokens = len(asked.ids)  # type: ignore[union-attr]
            self._requests.end(record, None)
            return made

    async def decode(self, ids: Sequence[int], owner: str) -> str:
        """Of a request that is on its way, with special tokens."""
        message = Decode(f"call-{next(self._calls)}", tuple(ids), special=True)
        made, _ = await self._pool.ask(message, owner)
        assert isinstance(made, DecodedText)
        return made.text
