"""Models by the names that Ollama's clients have for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bushel.server.errors import ApiError

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.services import Services

_TAG = ":latest"  # of a name that has no other
_HUBS = ("hf.co/", "huggingface.co/")  # where Ollama gets models that are not its own


def served_as(services: Services, name: str | None) -> tuple[Service, str]:
    """Who serves a model, and the name that it is served under; ApiError if nobody does."""
    try:
        service = services.of(name)
    except ApiError:
        plain = (name or "").removesuffix(_TAG)
        if plain == name:
            raise
        name, service = plain, services.of(plain)
    return service, service.names.resolve(name)


def hub_id(name: str) -> str:
    """The id on the hub that a name to pull means."""
    for hub in _HUBS:
        name = name.removeprefix(hub)
    return name.removesuffix(_TAG)
