"""Models of the hub's cache that are served because they are there (`--downloaded`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bushel.core.hub_errors import HubError
from bushel.server.hub.jobs import run_job
from bushel.server.hub.messages import ListModels

if TYPE_CHECKING:
    from bushel.server.service.services import Services

log = logging.getLogger(__name__)


async def serve_downloaded(services: Services) -> None:
    """At the start; later ones are added when they have come."""
    if not services.loading.takes_downloads:
        return
    try:
        found = await run_job(ListModels())
    except HubError as error:
        log.error("models on this machine's disk are not served: %s", error)
        return
    names = [card["id"] for card in found["models"]]
    services.add_downloaded(names)
    log.info("Served from the hub's cache, too: %s", ", ".join(names) or "nothing yet")
