"""When an engine is thought to hang, and when it is not (B52)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from bushel.core.options import EngineOptions
from bushel.core.wire import Beat, FromEngine, Progress, Ready
from bushel.server.processes.supervisor import Supervisor
from tests.server.server_process import FEW, PATIENCE, Server, serving, until


class Nobody:
    def engine_ready(self) -> None: ...

    def engine_lost(self, was_ready: bool) -> None: ...

    def engine_said(self, message: FromEngine) -> None: ...


class Watched:
    """A supervisor that hears an engine without there being one, at a time of our choice."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.supervisor = Supervisor(EngineOptions("m"), Nobody(), 30.0, lambda: self.now)

    def hear(self, message: Any) -> None:
        self.supervisor._hear(message, memoryview(b""))

    def beat(self, busy: float, patience: float) -> str | None:
        self.hear(Beat(1, busy, patience, {}))
        return self.supervisor._hang()


@pytest.fixture
def watched() -> Watched:
    async def make() -> Watched:
        return Watched()

    return asyncio.run(make())


def test_loading_takes_what_it_takes(watched: Watched) -> None:
    watched.hear(Progress("loading weights"))
    watched.now += 3600
    assert watched.supervisor._hang() is None
    assert watched.supervisor.outage is not None  # but nobody should count on it


def test_silence_is_worrying_soon_and_a_hang_later(watched: Watched) -> None:
    watched.hear(Ready({}))
    assert watched.supervisor.outage is None
    watched.now += 6
    assert watched.supervisor.outage is not None
    assert watched.supervisor._hang() is None
    watched.now += 25
    assert watched.supervisor._hang() is not None


@pytest.mark.parametrize(
    ("busy", "patience", "hangs"),
    [
        (29.0, 0.1, False),  # nothing is a hang before hang_seconds
        (31.0, 0.1, True),
        (31.0, 40.0, False),  # a long prompt was expected to take so long
        (41.0, 40.0, True),
        (500.0, 600.0, False),  # kernels are being compiled
    ],
)
def test_a_step_may_take_as_long_as_was_expected(
    watched: Watched, busy: float, patience: float, hangs: bool
) -> None:
    """The engine beats, but its thread does not get on."""
    watched.hear(Ready({}))
    assert (watched.beat(busy, patience) is not None) == hangs


# -- for real ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    options = ("--hang-seconds", "4", "--max-num-seqs", "1", "--queue-limit", "2")
    with serving(*FEW, *options) as server:
        yield server


@pytest.mark.long
def test_a_front_that_was_stopped_does_not_blame_its_engine(server: Server) -> None:
    pid = server.status()["engine"]["pid"]
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(5.5)
    os.kill(server.process.pid, signal.SIGCONT)
    until(lambda: server.health() == 200, "it is back")
    time.sleep(1)
    assert server.status()["engine"]["pid"] == pid


@pytest.mark.long
def test_beyond_the_queue_limit_a_client_is_told_to_come_back(server: Server) -> None:
    """A 429 with `Retry-After`, while others run and wait. B51."""
    long = {"prompt": "a", "max_tokens": 20_000, "ignore_eos": True}

    async def crowd() -> httpx.Response:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            asked = [asyncio.create_task(client.post("/v1/completions", json=long))]
            for waiting in (0, 1, 2):
                while True:
                    status = (await client.get("/v1/status")).json()
                    if status["running"] == 1 and status["waiting"] == waiting:
                        break
                    await asyncio.sleep(0.02)
                if waiting < 2:
                    asked.append(asyncio.create_task(client.post("/v1/completions", json=long)))
            refused = await client.post("/v1/completions", json=long)
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            return refused

    refused = asyncio.run(crowd())
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "queue_full"
    until(lambda: server.status()["requests"] == [], "the crowd has gone")
    short = {"prompt": "a", "max_tokens": 2}
    assert server.http.post("/v1/completions", json=short).status_code == 200
