"""One served model as the APIs see it: its processes from start to end, and what can be asked.

    requests.py       who is let in, and what is recorded of each request
    generation.py     a generation's way to the engine and back
    token_counts.py   requests for tokens alone
    engine_report.py  questions to the engine about itself
    model.py          what is known of the model

Everything here belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bushel.core.awake_clock import awake
from bushel.core.options import ModelInfo
from bushel.core.wire import (
    Accepted,
    Beat,
    Cleared,
    DecodedText,
    FromEngine,
    Made,
    Open,
    Refused,
    Status,
    Stepped,
)
from bushel.server.callers import Caller
from bushel.server.counting import CountJob
from bushel.server.errors import ApiError
from bushel.server.observability.metrics import Metrics
from bushel.server.options import ServerOptions
from bushel.server.processes.backoff import Outage, worst
from bushel.server.processes.pool import Pool
from bushel.server.processes.supervisor import EngineMemory, Supervisor
from bushel.server.service.engine_report import EngineReport
from bushel.server.service.generation import Generations, HeldTensors
from bushel.server.service.job import GenerationJob
from bushel.server.service.load_gate import LoadGate
from bushel.server.service.model import ServedModel
from bushel.server.service.names import Names
from bushel.server.service.requests import Requests
from bushel.server.service.ticket import Ticket
from bushel.server.service.token_counts import TokenCounts
from bushel.text.vocabulary import Vocabulary


class Service:
    """Make it on the event loop, `run` it as a task; once more, if it was unloaded.

    memory: where the engine's comes from. gate: where requests wait while the model is not loaded.
    label: what its processes are called beside those of other models, in the log.
    """

    def __init__(
        self,
        options: ServerOptions,
        names: Names,
        metrics: Metrics,
        memory: EngineMemory | None = None,
        gate: LoadGate | None = None,
        label: str = "",
    ):
        self.options = options
        self.names = names
        self.metrics = metrics
        self.ready = asyncio.Event()  # set when the first engine is
        self.gate = gate or LoadGate()
        engine, held = options.engine, HeldTensors()
        self.supervisor = Supervisor(
            engine, self, options.hang_seconds, label=f"engine{label}", memory=memory
        )
        self.pool = Pool(
            Open(
                engine.model,
                engine.trust_remote_code,
                options.media,
                options.chat_options,
                engine.max_model_len,
            ),
            options.workers,
            options.prepare_seconds,
            held.roomy,
            f"worker{label}",
        )
        self._model = ServedModel(self.pool)
        self._requests = Requests(options, metrics, lambda: self.outage, self.gate)
        self._generations = Generations(
            options, self._requests, self._model, self.pool, self.supervisor, held, metrics
        )
        self._counts = TokenCounts(options, self._requests, self.pool)
        self._report = EngineReport(self.supervisor, self._requests, metrics)

    # -- from start to end -------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled, or until it is known that the model cannot be served."""
        workers = asyncio.create_task(self.pool.run())
        engine = asyncio.create_task(self._run_engine())
        learning = asyncio.create_task(self._model.learn())
        try:
            await asyncio.wait([workers, engine], return_when=asyncio.FIRST_COMPLETED)
        finally:
            learning.cancel()
            await self.supervisor.close()
            workers.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await workers
            await engine
            self.ready.clear()
            self.supervisor.status = None
            self._report.engine_gone()

    async def _run_engine(self) -> None:
        model = self.options.engine.model
        if not model.startswith("bushel:") and not Path(model).expanduser().exists():
            # A worker fetches it; two would show it twice.
            await asyncio.wait([self.pool.model_info])
        if self.pool.failed is None:
            await self.supervisor.run()

    async def drain(self, seconds: float) -> None:
        """Take nothing new, and give what runs so many seconds."""
        self._requests.draining = True
        gone = ApiError(503, "The server is shutting down.", code="shutting_down")
        self.gate.refuse(gone)
        end = awake() + seconds if self.ready.is_set() else 0.0  # nothing runs without an engine
        while len(self._requests) and awake() < end:
            await asyncio.sleep(0.05)
        self.pool.give_up(gone)
        self._generations.abort_all(gone)

    def kill(self) -> None:
        """End all children now."""
        self.supervisor.kill()
        self.pool.kill()

    @property
    def failed(self) -> str | None:  # why the model cannot be served at all
        return self.supervisor.failed or self.pool.failed

    @property
    def outage(self) -> Outage | None:
        """What keeps requests from being served now: health, status and answers all go by it."""
        if self._requests.draining:
            return Outage("it is shutting down", hopeless=True)
        if not self.gate.is_open and not self.ready.is_set():
            return Outage("its model is not loaded")
        return self.load_outage

    @property
    def load_outage(self) -> Outage | None:
        """What is missing of a model that is being loaded, or is loaded."""
        return worst(self.supervisor.outage, self.pool.outage, self._model.outage)

    @property
    def memory_bytes(self) -> int:
        """That the engine keeps to, as it last said."""
        status = self.supervisor.status if self.supervisor.ready else None
        claimed = None if status is None else status.memory.claimed_bytes
        return claimed if isinstance(claimed, int) else 0

    @property
    def draining(self) -> bool:
        return self._requests.draining

    @property
    def work(self) -> int:
        """Requests that have entered and not ended."""
        return len(self._requests) - self.gate.waiting

    @property
    def live(self) -> int:
        """Requests that somebody waits for."""
        return self._requests.live

    @property
    def loading(self) -> bool:
        """Whether a request may have to wait for long before anything is said of it."""
        return not self.gate.is_open

    # -- what the APIs ask for ---------------------------------------------------------------

    @property
    def model_info(self) -> ModelInfo | None:
        return self._model.info

    @property
    def vocabulary(self) -> Vocabulary:
        return self._model.vocabulary

    async def open(self, job: GenerationJob, wake: Callable[[], None]) -> Ticket:
        """When this returns, the engine has accepted the request; ApiError if it cannot be served.
        `wake` is called whenever the ticket has something new.
        """
        return await self._generations.open(job, wake)

    def cancel(self, caller: Caller, request_id: str) -> bool:
        """False if no such request is there, or is not the caller's."""
        return self._generations.cancel(caller, request_id)

    async def count(self, job: CountJob) -> Made | DecodedText:
        return await self._counts.count(job)

    async def decode(self, ids: Sequence[int], owner: str) -> str:
        """Of a request that is on its way, with special tokens."""
        return await self._counts.decode(ids, owner)

    def health(self) -> str | None:
        return None if (outage := self.outage) is None else outage.reason

    async def status(self, caller: Caller) -> dict[str, Any]:
        """Of requests that are not the caller's, their number."""
        engine = await self._report.status()
        rows: dict[str, dict[str, Any]] = {}
        for row in engine.pop("requests", ()):
            rows.setdefault(row["id"], row)
        return {
            "model": self.names.main,
            "health": self.health() or "ok",
            "engine": {
                "ready": self.supervisor.ready,
                "restarts": self.supervisor.restarts,
                "reason": None if self.supervisor.ready else self.supervisor.reason,
                **engine,
                "pid": self.supervisor.pid,
            },
            "workers": self.pool.report(),
            "preparing": self._requests.preparing,
            "running": engine.get("running", 0),
            "waiting": engine.get("waiting", 0),
            **self._requests.report(caller, rows),
        }

    async def cache(self) -> dict[str, Any]:
        """What is kept of earlier prompts, and what it was good for since the server began."""
        return await self._report.cache()

    async def clear_cache(self) -> dict[str, Any]:
        return await self._report.clear_cache()

    # -- supervisor.Owner --------------------------------------------------------------------

    def engine_ready(self) -> None:
        self.ready.set()
        self._generations.submit_again()

    def engine_lost(self, was_ready: bool) -> None:
        self._report.engine_lost()
        self._generations.engine_lost(was_ready)

    def engine_said(self, message: FromEngine) -> None:
        if isinstance(message, Stepped | Accepted | Refused):
            self._generations.hear(message)
        elif isinstance(message, Status | Cleared | Beat):
            self._report.hear(message)
