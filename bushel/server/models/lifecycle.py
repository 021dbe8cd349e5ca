"""Loads and unloads a server's models as `residency` decides, and as operators ask.

    request ──> gate ──> want ──> queued ──> plan_residency ──> load ──> gate opens

Everything here belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bushel.core import BackendError, BushelError
from bushel.core.awake_clock import awake
from bushel.core.wire import AskLimits, Failed, FromEngine, MachineLimits
from bushel.server.errors import ApiError
from bushel.server.models.loadable import LoadableModel
from bushel.server.models.memory_ledger import MemoryLedger
from bushel.server.models.residency import plan_residency
from bushel.server.observability.metrics import Metrics
from bushel.server.options import ModelSpec, ServerOptions
from bushel.server.processes.child import Child
from bushel.server.service.names import Names
from bushel.server.service.service import Service
from bushel.server.service.services import ModelReport

log = logging.getLogger(__name__)

_TICK = 0.25  # seconds between two decisions where nothing happens
_AGAIN = 5.0  # seconds after which the machine's limits are asked for again
MORE = 8  # models that are added later, for which files and descriptors are shared out at the start


class ModelLifecycle:
    """`services.Loading` of several models. Make it on the event loop, `run` it as a task."""

    def __init__(self, options: ServerOptions, names: Sequence[Names], ledger: MemoryLedger):
        self._options = options
        self._ledger = ledger
        self._changed = asyncio.Event()
        self._shares = len(names) + (MORE if options.downloaded else 0)
        self._models = [
            self._loadable(options, spec, each, front=at == 0)
            for at, (spec, each) in enumerate(zip(options.models, names, strict=True))
        ]
        self._added: set[Service] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._known = asyncio.Event()  # what the machine has
        # Why no model can be served at all; one that cannot be is no reason to end.
        self.failed: str | None = None

    def _loadable(
        self, options: ServerOptions, spec: ModelSpec, names: Names, *, front: bool
    ) -> LoadableModel:
        own = _own_options(options, spec, names.main, self._shares)
        metrics = Metrics(names.main, front=front, kv_bits=options.engine.kv_bits)
        return LoadableModel(own, names, metrics, self._ledger, self._changed)

    @property
    def ready(self) -> asyncio.Event:
        """Set: it serves, with or without a model in memory."""
        return self._known

    @property
    def services(self) -> list[Service]:
        return [model.service for model in self._models]

    # -- from start to end -------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled, or until it is known that no model can be served."""
        try:
            await self._learn_limits()
            if self.failed is not None:
                return
            self._known.set()
            for model in self._models:
                if self._is_among(model, self._options.pinned):
                    model.pinned = True
                    model.want()
            while True:
                self._changed.clear()
                self._decide()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TICK):
                        await self._changed.wait()
        finally:
            await asyncio.gather(*(model.close() for model in self._models), *self._leaving)

    async def drain(self, seconds: float) -> None:
        """Take nothing new, and give what runs so many seconds."""
        await asyncio.gather(*(service.drain(seconds) for service in self.services))

    def kill(self) -> None:
        """End all children now."""
        for service in self.services:
            service.kill()

    async def _learn_limits(self) -> None:
        """From an engine process that is started for nothing else."""
        while self._ledger.limits is None and self.failed is None:
            try:
                self._ledger.learn(await self._ask_limits())
            except BackendError as error:
                self.failed = str(error)
            except (OSError, BushelError) as error:
                log.error("the machine's memory is not known: %s", error)
                await asyncio.sleep(_AGAIN)

    async def _ask_limits(self) -> MachineLimits:
        told: asyncio.Future[MachineLimits] = asyncio.get_running_loop().create_future()

        def hear(message: FromEngine, _: memoryview) -> None:
            if isinstance(message, MachineLimits) and not told.done():
                told.set_result(message)
            elif isinstance(message, Failed) and not told.done():
                told.set_exception(BackendError(message.reason))

        child: Child[FromEngine] = await Child.spawn("bushel.engine.process", FromEngine, hear)
        try:
            child.send(AskLimits(self._options.engine.beside))
            child.ended.add_done_callback(lambda _: told.cancel())
            await asyncio.wait([told])
        finally:
            await child.close()
        if told.cancelled():
            raise BushelError(f"an engine ended with code {child.ended.result()}")
        return told.result()

    # -- deciding ------------------------------------------------------------------------------

    def _decide(self) -> None:
        now = awake()
        options = self._options
        known = {
            model.name: model for model in self._models if model.phase != "queued" or model.sized
        }
        plan = plan_residency(
            [model.resident(now) for model in known.values()],
            self._ledger.room,
            now,
            keep_alive=None if math.isinf(options.keep_alive) else options.keep_alive,
            patience=options.swap_seconds,
        )
        for name, model in known.items():
            if model.phase == "ready" and name not in plan.unload:
                model.hold(name in plan.hold)
        for name in plan.unload:
            stale = now - known[name].used >= options.keep_alive
            self._unload(known[name], "nobody uses it" if stale else "its memory is needed")
        for name in plan.load:
            known[name].load()
        for name in plan.refuse:
            known[name].fail("there is no room for it beside what is loaded and cannot go")

    def _unload(self, model: LoadableModel, why: str) -> asyncio.Task[None]:
        leaving = model.unload(why)
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        return leaving

    # -- services.Loading ------------------------------------------------------------------------

    def report(self, service: Service) -> ModelReport:
        return self._of(service).report()

    async def load(self, service: Service) -> None:
        await self._of(service).loaded()

    async def unload(self, service: Service) -> None:
        model = self._of(service)
        if model.pinned:
            raise ApiError(409, "The model is pinned; unpin it first.", code="model_pinned")
        if service.work or service.gate.waiting:
            raise ApiError(409, "The model is serving requests.", code="model_busy", retry_after=2)
        if model.phase in ("queued", "loading", "ready"):
            await asyncio.shield(self._unload(model, "an operator asked for it"))
        while model.phase == "unloading":
            await asyncio.sleep(_TICK / 10)

    def pin(self, service: Service, pinned: bool) -> None:
        self._of(service).pinned = pinned
        self._changed.set()

    def memory(self) -> dict[str, Any]:
        ledger = self._ledger
        if ledger.limits is None:
            return {}
        return {
            "limit_bytes": ledger.limit,
            "granted_bytes": sum(model.claim.granted for model in self._models),
            "machine_limit_bytes": ledger.machine,
            "machine_granted_bytes": ledger.granted,
        }

    @property
    def takes_downloads(self) -> bool:
        return self._options.downloaded

    def add(self, model: str) -> Service:
        # Whoever allowed code allowed that of the models they named.
        options = replace(
            self._options, engine=replace(self._options.engine, trust_remote_code=False)
        )
        added = self._loadable(options, ModelSpec(model), Names.of(model), front=False)
        self._models.append(added)
        self._added.add(added.service)
        return added.service

    def discard(self, service: Service) -> bool:
        model = self._of(service)
        if service not in self._added or model.phase != "unloaded":
            return False
        self._added.discard(service)
        self._models.remove(model)
        return True

    def _of(self, service: Service) -> LoadableModel:
        return next(model for model in self._models if model.service is service)

    @staticmethod
    def _is_among(model: LoadableModel, names: Sequence[str]) -> bool:
        return any(name in names for name in model.service.names.all)


def _own_options(options: ServerOptions, spec: ModelSpec, name: str, models: int) -> ServerOptions:
    """With a folder for its files alone: two models may be copies of one checkpoint."""
    engine = replace(options.engine, model=spec.model)
    if engine.cache_dir is not None:
        folder = f"{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        disk = None if engine.cache_disk is None else engine.cache_disk // models
        engine = replace(engine, cache_dir=str(Path(engine.cache_dir) / folder), cache_disk=disk)
    return replace(options, engine=engine)
