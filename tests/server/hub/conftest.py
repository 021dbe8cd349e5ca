"""A server that pulls and removes models: one of each worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.hub.hub_client import MODEL, HubOperator, hub_operator


@pytest.fixture(scope="session")
def _operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubOperator]:
    """The model of the hub is one of two that are served, and the other is loaded."""
    with hub_operator(
        tmp_path_factory.mktemp("home"),
        *("--keep-alive", "never", "--downloaded"),
        model=("bushel:tiny", f"named={MODEL}"),
    ) as operator:
        yield operator
        assert "Traceback" not in operator.server.log


@pytest.fixture
def operator(_operator: HubOperator) -> Iterator[HubOperator]:
    yield _operator
    _operator.ask("POST", "/v1/models/named/unload")
    _operator.reset()
