"""One server with the model that comes with Bushel, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import openai
import pytest

from tests.server.server_process import FEW, PATIENCE, Server, serving

MODEL = "bushel:tiny"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving(*FEW) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[openai.OpenAI]:
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="any", timeout=PATIENCE, max_retries=0) as made:
        yield made


@pytest.fixture(scope="session")
def claude(server: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=server.url, api_key="any", timeout=PATIENCE, max_retries=0
    ) as made:
        yield made
