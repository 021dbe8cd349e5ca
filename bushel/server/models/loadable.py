"""One model that comes and goes: its processes, its memory, and the gate before it."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from bushel.core import BushelError
from bushel.core.awake_clock import awake
from bushel.server.errors import ApiError
from bushel.server.models.memory_ledger import EngineClaim, MemoryLedger
from bushel.server.models.residency import LoadPhase, Resident
from bushel.server.observability.metrics import Metrics
from bushel.server.options import ServerOptions
from bushel.server.processes.backoff import Backoff
from bushel.server.service.load_gate import LoadGate
from bushel.server.service.names import Names
from bushel.server.service.service import Service
from bushel.server.service.services import ModelReport, ModelState

log = logging.getLogger(__name__)

_LOOK = 0.1  # seconds between looks whether a model that is being loaded is


class LoadableModel:
    """Belongs to the event loop, and to `lifecycle`, which decides when it is loaded and unloaded.

    changed: set whenever there may be something new to decide.
    """

    def __init__(
        self,
        options: ServerOptions,
        names: Names,
        metrics: Metrics,
        ledger: MemoryLedger,
        changed: asyncio.Event,
    ):
        self.name = names.main
        self.pinned = False
        self.phase: LoadPhase = "unloaded"
        self.failure: str | None = None  # why the last load failed, without paths
        self._since = self.used = 0.0
        self._need = 0
        self._retry = 0.0  # when the next load may be tried
        self._ledger = ledger
        self._changed = changed
        self._backoff = Backoff(awake)
        self._asked: list[asyncio.Future[None]] = []  # operators who wait for it
        self._life: asyncio.Task[None] | None = None
        self.claim: EngineClaim = ledger.claim(options.engine, self.name)
        gate = LoadGate(self.want)
        label = f" of {self.name}"
        self.service = Service(options, names, metrics, self.claim, gate, label)

    # -- looking at it -----------------------------------------------------------------------

    def resident(self, now: float) -> Resident:
        service = self.service
        if self.phase == "ready" and service.work:
            self.used = now
        wanted, work = service.gate.since, service.work
        return Resident(
            self.name, self.phase, self._need, work, wanted, self._since, self.used, self.pinned
        )

    def report(self) -> ModelReport:
        phase = self.phase
        if phase == "ready":
            outage = self.service.load_outage
            reason = None if outage is None else outage.reason
            state: ModelState = "ready" if outage is None else "loading"
            return ModelReport(state, reason, self.pinned, self.claim.granted)
        if phase == "unloaded" and self.failure is not None:
            return ModelReport("failed", self.failure, self.pinned, 0)
        reasons = {
            "unloaded": "it is loaded when somebody asks for it",
            "queued": "it waits for memory",
            "loading": self.service.supervisor.reason,
            "unloading": "it is being unloaded",
        }
        return ModelReport(phase, reasons[phase], self.pinned, self.claim.granted)

    # -- being wanted ------------------------------------------------------------------------

    def want(self) -> None:
        """Somebody waits for it. ApiError if it could not be loaded a moment ago."""
        if self.phase == "unloaded":
            left = self._retry - awake()
            if self.failure is not None and left > 0:
                raise load_failed(self.name, self.failure, left)
            self._enter("queued")
            self._life = asyncio.create_task(self._find_need())
        self._changed.set()

    async def loaded(self) -> None:
        """Want it, and wait until it is there."""
        if self.phase != "ready":
            self._asked.append(turn := asyncio.get_running_loop().create_future())
            try:
                self.want()
                await turn
            finally:
                self._asked = [other for other in self._asked if other is not turn]

    @property
    def sized(self) -> bool:
        return self._need > 0

    async def _find_need(self) -> None:
        try:
            self._need = await self._ledger.need(self.service.options.engine)
            self.claim.queue(self._need)
        except BushelError as error:
            log.error("%s cannot be loaded: %s", self.name, error)
            self.fail(_public(error))
        except OSError as error:
            log.error("%s cannot be read: %s", self.name, error)
            self.fail("its files cannot be read")
        self._changed.set()

    def _enter(self, phase: LoadPhase) -> None:
        self.phase, self._since = phase, awake()
        self._changed.set()

    # -- coming and going ----------------------------------------------------------------------

    def load(self) -> None:
        self._enter("loading")
        self._life = asyncio.create_task(self._live())

    async def _live(self) -> None:
        """From the start of its processes until they are gone."""
        log.info("%s is being loaded", self.name)
        service = self.service
        running = asyncio.create_task(service.run())
        why: str | None = None
        try:
            while not running.done():
                outage = service.load_outage
                if outage is None and self.phase == "loading":
                    self._ready()
                elif outage is not None and outage.hopeless:
                    why = outage.reason
                    break
                await asyncio.wait([running], timeout=_LOOK if self.phase == "loading" else 1.0)
        finally:
            service.gate.shut()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            self.claim.release()
        if service.failed is not None:
            log.error("%s cannot be loaded: %s", self.name, service.failed)
            why = _without_paths(service.failed)
        self.fail(why or "its processes ended")

    def _ready(self) -> None:
        self.failure = None
        self._backoff.up()
        self._enter("ready")
        self.used = awake()
        self.service.gate.open()
        self.service.metrics.loaded()
        self._answer(None)
        log.info("%s is loaded, and may use %.2f GB", self.name, self.claim.granted / 1e9)

    def hold(self, held: bool) -> None:
        """Whether those who come now wait."""
        gate = self.service.gate
        if held and gate.is_open:
            log.info("%s finishes what it has, and makes way", self.name)
            gate.shut()
        elif not held and not gate.is_open and self.phase == "ready":
            gate.open()

    def unload(self, why: str) -> asyncio.Task[None]:
        log.info("%s is unloaded: %s", self.name, why)
        life, self._life = self._life, None
        self.service.gate.shut()
        self._enter("unloading")
        return asyncio.create_task(self._leave(life))

    async def _leave(self, life: asyncio.Task[None] | None) -> None:
        if life is not None:
            life.cancel()
            await asyncio.wait([life])
        self.claim.release()
        self.service.metrics.unloaded()
        self._enter("unloaded")
        if self.service.gate.waiting:
            self.want()

    def fail(self, reason: str) -> None:
        """Each of those who wait is told; a later one may try again."""
        self.failure = reason
        wait = self._backoff.died()
        self._retry = awake() + wait
        self.claim.release()
        self._enter("unloaded")
        error = load_failed(self.name, reason, wait)
        self.service.gate.refuse(error)
        self._answer(error)

    def _answer(self, error: ApiError | None) -> None:
        asked, self._asked = self._asked, []
        for turn in asked:
            if not turn.done():
                turn.set_result(None) if error is None else turn.set_exception(error)

    async def close(self) -> None:
        """At the end of the server."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait([self._life])
        self.claim.release()


def load_failed(name: str, reason: str, wait: float) -> ApiError:
    return ApiError(
        503,
        f"The model `{name}` cannot be loaded: {reason.removesuffix('.')}.",
        code="model_load_failed",
        param="model",
        retry_after=max(1, round(wait)),
    )


def _public(error: BushelError) -> str:
    return _without_paths(str(error))


def _without_paths(text: str) -> str:
    """Clients need not know where files are; the log says it."""
    return text if "/" not in text else "its checkpoint cannot be used; the log says why"
