"""The models that this server serves, each by its names."""

from __future__ import annotations

from bushel.server.options import ServerOptions
from bushel.server.service.service import Service


class Services:
    """One today. What concerns the server as a whole is asked of `main`, the first."""

    def __init__(self, *services: Service):
        self.main = services[0]
        self._services = services

    @property
    def options(self) -> ServerOptions:
        return self.main.options

    def of(self, model: str | None) -> Service:
        """Who serves the model that a request names, if it names one; ApiError if nobody does."""
        for service in self._services:
            if service.names.find(model) is not None:
                return service
        raise self.main.names.unknown(model or "")
