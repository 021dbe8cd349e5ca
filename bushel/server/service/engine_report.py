"""What the engine says of itself, for operators: its status and its cache."""

from __future__ import annotations

import contextlib
from typing import Any

from bushel.core.status import EngineStatus, as_json
from bushel.core.wire import Beat, Cleared, Status
from bushel.server import errors
from bushel.server.errors import ApiError
from bushel.server.observability.metrics import Metrics
from bushel.server.processes.supervisor import Supervisor
from bushel.server.service.engine_queries import EngineQueries
from bushel.server.service.requests import Requests


class EngineReport:
    """Belongs to the event loop."""

    def __init__(self, supervisor: Supervisor, requests: Requests, metrics: Metrics):
        self._supervisor = supervisor
        self._requests = requests
        self._metrics = metrics
        self._queries = EngineQueries(supervisor.send)

    def hear(self, message: Status | Cleared | Beat) -> None:
        self._metrics.engine(message.status, up=True, preparing=self._requests.preparing)
        if isinstance(message, Beat):
            self._requests.tell_prefills(message.status.requests)
        else:
            self._queries.hear(message)

    def engine_lost(self) -> None:
        self._metrics.restarted(self._supervisor.ending)
        self.engine_gone()

    def engine_gone(self) -> None:
        """There is none, whatever the reason."""
        self._metrics.engine(EngineStatus(), up=False)
        self._queries.lose()

    async def status(self) -> dict[str, Any]:
        """As it says now, or as it last said."""
        if self._supervisor.ready:
            with contextlib.suppress(TimeoutError, ApiError):
                return as_json(await self._queries.status())
        return as_json(self._supervisor.status)

    async def cache(self) -> dict[str, Any]:
        """What is kept of earlier prompts, and what it was good for since the server began."""
        self._need_engine()
        status = self._supervisor.status
        with contextlib.suppress(TimeoutError):
            status = await self._queries.status()
        return self._cache(status)

    async def clear_cache(self) -> dict[str, Any]:
        self._need_engine()
        return self._cache(await self._queries.clear())

    def _need_engine(self) -> None:
        if (outage := self._supervisor.outage) is not None:
            raise errors.unavailable(outage.reason)

    def _cache(self, status: EngineStatus | None) -> dict[str, Any]:
        kept = None if status is None else status.cache
        return {**as_json(kept), "since_start": self._metrics.reuse.counts}
