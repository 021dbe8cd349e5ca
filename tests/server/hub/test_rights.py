"""Who may change this machine's disk, and which models a download adds to a server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.datastructures import Headers

from bushel.core.held_files import VARIABLE
from bushel.core.options import EngineOptions
from bushel.server.errors import ApiError
from bushel.server.hub.routes import DiskRights
from bushel.server.models.claims import Claims
from bushel.server.models.lifecycle import ModelLifecycle
from bushel.server.models.memory_ledger import MemoryLedger
from bushel.server.options import ModelSpec, ServerOptions
from bushel.server.service.names import names_of
from bushel.server.service.services import Services

ENGINE = EngineOptions(model="bushel:tiny", trust_remote_code=True)
OPTIONS = ServerOptions(engine=ENGINE, models=(ModelSpec("bushel:tiny"), ModelSpec("a/b", "named")))


def rights(**options: Any) -> DiskRights:
    services = SimpleNamespace(options=replace(OPTIONS, **options))
    return DiskRights(cast(Services, services))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "bushel.example"])
def test_without_a_key_other_machines_cannot_change_the_disk(host: str) -> None:
    """Everybody who can reach the server would be its operator. B68."""
    open_to_all = rights(host=host)
    open_to_all.look(Headers())
    with pytest.raises(ApiError) as refused:
        open_to_all.change(Headers())
    assert (refused.value.status, refused.value.code) == (403, "operator_only")
    rights(host=host, api_keys=("k",)).change(Headers({"authorization": "Bearer k"}))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_on_this_machine_alone_no_key_is_needed(host: str) -> None:
    rights(host=host).change(Headers())


def services(**more: Any) -> Services:
    options = replace(OPTIONS, **more)
    ledger = MemoryLedger(None, Claims())
    lifecycle = ModelLifecycle(options, names_of(options), ledger)
    return Services(*lifecycle.services, loading=lifecycle)


@pytest.fixture(autouse=True)
def _own_claims(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))


def test_what_is_downloaded_is_served_only_where_that_was_asked_for() -> None:
    """And never twice, whatever it was named at the start."""

    async def scenario() -> None:
        closed = services()
        closed.add_downloaded(["c/d"])
        assert closed.names == ("bushel:tiny", "named")
        taking = services(downloaded=True)
        taking.add_downloaded(["a/b", "c/d"])
        taking.add_downloaded(["c/d"])
        assert taking.names == ("bushel:tiny", "named", "c/d")
        taking.discard_downloaded("c/d")
        taking.discard_downloaded("a/b")  # which was named at the start
        assert taking.names == ("bushel:tiny", "named")
        with pytest.raises(ApiError):
            taking.of("c/d")

    asyncio.run(scenario())


def test_code_of_a_model_that_was_downloaded_is_not_run() -> None:
    """Whoever said --trust-remote-code spoke of the models that they named."""

    async def scenario() -> None:
        taking = services(downloaded=True)
        taking.add_downloaded(["c/d"])
        trusted = {one.names.main: one.options.engine.trust_remote_code for one in taking.all}
        assert trusted == {"bushel:tiny": True, "named": True, "c/d": False}

    asyncio.run(scenario())
