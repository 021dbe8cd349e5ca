"""The requests that are here: who is let in, what is recorded of each, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from bushel.core.awake_clock import awake
from bushel.core.status import RequestStatus
from bushel.core.wire import Started
from bushel.server import errors
from bushel.server.callers import Caller
from bushel.server.errors import ApiError
from bushel.server.observability import logs
from bushel.server.observability.metrics import Metrics
from bushel.server.observability.request_record import Record
from bushel.server.options import ServerOptions
from bushel.server.processes.backoff import Outage
from bushel.server.service.load_gate import LoadGate

_WAITING = ("loading", "preparing", "queued")
_TELL_EVERY = 5.0  # seconds between two lines of a prompt that runs
_RECENT = 32  # finished requests that `/v1/status` still shows


class Requests:
    """Belongs to the event loop. outage: what keeps requests from being served now."""

    def __init__(
        self,
        options: ServerOptions,
        metrics: Metrics,
        outage: Callable[[], Outage | None],
        gate: LoadGate,
    ):
        self.draining = False
        self._gate = gate
        self._options = options
        self._metrics = metrics
        self._outage = outage
        self._records: dict[str, Record] = {}  # of everything that is not finished
        self._recent: deque[Record] = deque(maxlen=_RECENT)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def preparing(self) -> int:
        return sum(record.phase == "preparing" for record in self._records.values())

    @property
    def live(self) -> int:
        """Those that somebody waits for."""
        return sum(not record.background for record in self._records.values())

    def find(self, caller: Caller, request_id: str) -> Record | None:
        """None if no such request is there, or is not the caller's."""
        record = self._records.get(request_id)
        return record if record is not None and caller.sees(record.owner) else None

    def admit(self, record: Record) -> None:
        """ApiError if there is no room for it, or nobody who could serve it."""
        if self.draining:
            raise ApiError(503, "The server is shutting down.", code="shutting_down", retry_after=5)
        if (outage := self._outage()) is not None and outage.hopeless:
            raise errors.unavailable(outage.reason)
        waiting = [other for other in self._records.values() if other.phase in _WAITING]
        if not record.background:  # which takes nobody's place
            waiting = [other for other in waiting if not other.background]
        free = self._options.limits.queue - len(waiting)
        own = sum(other.owner == record.owner for other in waiting)
        # An owner among several leaves as much of the queue free as it takes.
        if free <= 0 or (len(self._options.keys) > 1 and own >= free):
            raise errors.too_many(len(waiting))
        self._records[record.id] = record

    def cancel(self, record: Record) -> None:
        """Of one that no engine has. A worker is not interrupted; it is seen after that."""
        record.cancelled = True
        self._gate.cancel(record)

    @contextlib.asynccontextmanager
    async def on_its_way(self, record: Record, seconds: float | None) -> AsyncIterator[None]:
        """Waits until its model is loaded. Ends the record of what fails, takes too long or is
        given up.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._gate.enter(record)
                if record.cancelled:
                    raise errors.cancelled()
                yield
        except TimeoutError:
            error = errors.timed_out(seconds or 0.0)
            self.end(record, error)
            raise error from None
        except ApiError as error:
            self.end(record, error)
            raise
        except BaseException:  # above all: the client went away
            self.end(record, None, status=499)
            raise

    def begin(self, record: Record, started: Started, now: float) -> None:
        """Its prompt begins to run."""
        record.start(started, now)
        logs.started(record)

    def tell_prefills(self, rows: Iterable[RequestStatus]) -> None:
        """Of prompts that take long, how far they are; `rows` is what the engine says of all."""
        now = awake()
        for row in rows:
            record = self._records.get(row.id)
            if record is None or record.phase != "prefill" or record.started is None:
                continue
            last = record.started if record.prefill_told is None else record.prefill_told
            if now - last >= _TELL_EVERY:
                record.prefill_told = now
                logs.prefilling(record, row.prefilled_tokens, now)

    def end(self, record: Record, error: ApiError | None, *, status: int = 200) -> None:
        if self._records.pop(record.id, None) is None:
            return
        record.finished, record.phase = awake(), "done"
        record.status = status if error is None else error.status
        record.error = None if error is None else error.code
        if error is not None:
            error.told = True
        self._recent.append(record)
        self._metrics.finished(record)
        logs.finished(record)

    def report(self, caller: Caller, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """As `/v1/status` shows them; `rows` is what the engine says of each. Of requests that are
        not the caller's, their number.
        """
        now = awake()
        seen = [record for record in self._records.values() if caller.sees(record.owner)]
        return {
            "requests": [record.report(now, rows.get(record.id)) for record in seen],
            "others": len(self._records) - len(seen),
            "recent": [
                record.summary(now)
                for record in reversed(self._recent)
                if caller.sees(record.owner)
            ],
        }
