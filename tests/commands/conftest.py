"""A server that commands talk to: one for each worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.server_process import FEW, Server, serving

KEY = "right"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """With a key, another name for its model, and no room for large bodies."""
    flags = ("--api-key", KEY, "--model-alias", "other=bushel:tiny", "--max-body-mb", "1")
    with serving(*FEW, *flags) as running:
        running.http.headers["authorization"] = f"Bearer {KEY}"
        yield running
