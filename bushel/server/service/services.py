"""The models that this server serves, each by its names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from bushel.server.callers import Caller
from bushel.server.errors import ApiError
from bushel.server.observability.metrics import AllMetrics, Metrics
from bushel.server.options import ServerOptions
from bushel.server.service.names import matches
from bushel.server.service.service import Service

_SUMS = ("preparing", "running", "waiting")
ModelState = Literal["unloaded", "queued", "loading", "ready", "unloading", "failed"]


@dataclass(frozen=True)
class ModelReport:
    """How a model is doing, as `/v1/models` shows it. reason: why it is not ready."""

    state: ModelState
    reason: str | None
    pinned: bool
    memory_bytes: int  # that its engine may use


class Loading(Protocol):
    """What loads and unloads. ApiError where that cannot be done."""

    def report(self, service: Service) -> ModelReport: ...

    async def load(self, service: Service) -> None:
        """When this returns it is loaded."""

    async def unload(self, service: Service) -> None:
        """When this returns its memory is free."""

    def pin(self, service: Service, pinned: bool) -> None: ...

    def memory(self) -> dict[str, Any]:
        """As `/v1/status` shows it."""

    @property
    def takes_downloads(self) -> bool:
        """Whether models of the hub's cache may be added."""

    def add(self, model: str) -> Service:
        """One more, by its hub id."""

    def discard(self, service: Service) -> bool:
        """One that was added is gone. False: it stays, since it was named at the start or runs."""


class OnlyModel:
    """The `Loading` of a server with one model, which is there from start to end."""

    def report(self, service: Service) -> ModelReport:
        reason = service.health()
        state: ModelState = "ready" if reason is None else "loading"
        return ModelReport(state, reason, True, service.memory_bytes)

    async def load(self, service: Service) -> None:
        return

    async def unload(self, service: Service) -> None:
        raise _only()

    def pin(self, service: Service, pinned: bool) -> None:
        if not pinned:
            raise _only()

    def memory(self) -> dict[str, Any]:
        return {}

    @property
    def takes_downloads(self) -> bool:
        return False

    def add(self, model: str) -> Service:
        raise _only()

    def discard(self, service: Service) -> bool:
        return False


def _only() -> ApiError:
    return ApiError(
        409,
        "This server has one model, which stays. Start it with several, or with --keep-alive.",
        code="model_pinned",
    )


class Services:
    """What concerns the server as a whole is asked of `main`, the first. aliases: of all models, in
    the order in which they were given.
    """

    def __init__(
        self,
        *services: Service,
        loading: Loading | None = None,
        aliases: Sequence[tuple[str, str]] = (),
    ):
        self.main = services[0]
        self._aliases = aliases
        self.loading: Loading = loading or OnlyModel()
        self._services = services

    @property
    def all(self) -> Sequence[Service]:
        return self._services

    def add_downloaded(self, models: Sequence[str]) -> None:
        """Models of the hub's cache are served by their ids, where the server was started so."""
        if self.loading.takes_downloads:
            known = {*self.names, *(service.options.engine.model for service in self._services)}
            new = [model for model in models if model not in known]
            self._services = (*self._services, *map(self.loading.add, new))

    def discard_downloaded(self, model: str) -> None:
        """It is not on disk any more."""
        self._services = tuple(
            service
            for service in self._services
            if service.options.engine.model != model or not self.loading.discard(service)
        )

    @property
    def several(self) -> bool:
        """Whether models come and go."""
        return not isinstance(self.loading, OnlyModel)

    @property
    def options(self) -> ServerOptions:
        return self.main.options

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for service in self._services for name in service.names.all)

    @property
    def metrics(self) -> Metrics | AllMetrics:
        if len(self._services) == 1:
            return self.main.metrics
        return AllMetrics([service.metrics for service in self._services])

    def health(self) -> str | None:
        """Why nobody is served, if so. A model that is not loaded, or cannot be, is no reason."""
        return None if self.several and not self.main.draining else self.main.health()

    async def status(self, caller: Caller) -> dict[str, Any]:
        """Of all models, by their names."""
        each: dict[str, dict[str, Any]] = {}
        for service in self._services:
            report = self.loading.report(service)
            status = await service.status(caller)
            each[service.names.main] = {**asdict(report), **status}
        return {
            "health": self.health() or "ok",
            "memory": self.loading.memory(),
            **{key: sum(status[key] for status in each.values()) for key in _SUMS},
            "models": each,
        }

    def of(self, model: str | None) -> Service:
        """Who serves the model that a request names, if it names one; ApiError if nobody does.

        A name goes before every alias, and of those the first that was given.
        """
        if model is None or not model.strip():
            return self.main
        for service in self._services:
            if model in service.names.all:
                return service
        for pattern, target in self._aliases:
            if matches(pattern, model):
                return next(one for one in self._services if target in one.names.all)
        for service in self._services:
            if service.names.find(model) is not None:
                return service
        raise self.main.names.unknown(model, self.names)
