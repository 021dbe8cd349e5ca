"""An engine that dies or hangs takes its own replies with it, and nothing else (B47, B52)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.server.server_process import FEW, PATIENCE, Server, alive, children, serving, until

pytestmark = pytest.mark.long

STREAMS = int(os.environ.get("BUSHEL_TEST_STREAMS", "12"))  # as many rows decode; more wait
QUEUED = 6


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*FEW, "--max-num-seqs", str(STREAMS), "--hang-seconds", "5") as server:
        yield server


def body(tokens: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Say hello."}]
    return {"messages": messages, "max_tokens": tokens, "temperature": 0, **more}


async def stream(client: httpx.AsyncClient, begun: asyncio.Semaphore) -> list[dict[str, Any]]:
    """The data of every event of a reply that is long enough to be cut short."""
    sent = body(20_000, stream=True, ignore_eos=True)
    found: list[dict[str, Any]] = []
    async with client.stream("POST", "/v1/chat/completions", json=sent) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                found.append({"done": True} if "[DONE]" in line else json.loads(line[6:]))
                if len(found) == 3:
                    begun.release()
    return found


@dataclass
class Lost:
    """What everyone got."""

    streams: list[list[dict[str, Any]]]
    whole: httpx.Response  # of a reply that was not streamed
    queued: list[httpx.Response]
    cleared: httpx.Response  # of someone who asked for that when the engine was as good as dead
    healths: set[int]


async def lose(server: Server, number: signal.Signals) -> Lost:
    """Run as many replies as there are rows and queue more requests, then end the engine."""
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, limits=limits) as client:

        async def status() -> dict[str, Any]:
            return dict((await client.get("/v1/status")).json())

        def asked(tokens: int, **more: Any) -> asyncio.Task[httpx.Response]:
            sent = body(tokens, **more)
            return asyncio.create_task(client.post("/v1/chat/completions", json=sent))

        whole = asked(20_000, ignore_eos=True)
        while not any(request["completion_tokens"] for request in (await status())["requests"]):
            await asyncio.sleep(0.05)
        begun = asyncio.Semaphore(0)
        streams = [asyncio.create_task(stream(client, begun)) for _ in range(STREAMS - 1)]
        for _ in streams:
            await begun.acquire()
        queued = [asked(8) for _ in range(QUEUED)]
        while (await status())["waiting"] < QUEUED:
            await asyncio.sleep(0.05)
        before = (await status())["engine"]["pid"]
        os.kill(before, number)
        clearing = asyncio.create_task(client.delete("/v1/cache"))
        seen = set()
        while (code := (await client.get("/health")).status_code) != 200 or 503 not in seen:
            seen.add(code)
            await asyncio.sleep(0.05)
        assert not alive(before)
        ended = await asyncio.gather(*streams), await whole, await asyncio.gather(*queued)
        return Lost(*ended, await clearing, seen | {200})


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSTOP])
def test_running_replies_are_told_and_waiting_ones_are_served(
    server: Server, number: signal.Signals
) -> None:
    """After an abort from below Python, and a hang. (kill -9: `test_deaths`.)"""
    restarts = server.status()["engine"]["restarts"]
    kin = len(children(server.process.pid))
    lost = asyncio.run(lose(server, number))
    for events in lost.streams:
        assert events[-1]["error"]["code"] == "engine_restarted"
        assert sum("error" in event for event in events) == 1
        assert not any("done" in event for event in events)
        assert all(not it["finish_reason"] for e in events for it in e.get("choices", ()))
    assert lost.whole.status_code == 503
    assert int(lost.whole.headers["retry-after"]) >= 1
    assert lost.whole.json()["error"]["code"] == "engine_restarted"
    expected = server.http.post("/v1/chat/completions", json=body(8)).json()
    for response in lost.queued:
        assert response.status_code == 200, response.text
        assert response.json()["choices"] == expected["choices"]
    assert lost.healths == {200, 503}
    status = server.status()
    assert status["engine"]["restarts"] == restarts + 1
    assert (status["running"], status["waiting"], status["requests"]) == (0, 0, [])
    assert len(children(server.process.pid)) == kin
    told = server.http.get("/metrics").text
    assert set(re.findall(r'engine_restarts_total{.*reason="(.*?)"}', told)) == {"died", "hung"}
    assert lost.cleared.status_code == 503
    noticed = ["engine_unavailable"] if number == signal.SIGABRT else []  # before it was asked
    assert lost.cleared.json()["error"]["code"] in ("engine_restarted", *noticed)
    assert server.http.delete("/v1/cache").json()["on"]


def test_a_request_that_was_there_when_two_engines_died_is_given_up(server: Server) -> None:
    """It may be the cause: it must not take down one engine after the server."""
    prompt = "word " * 30_000  # prefills long enough to be there twice

    async def poison() -> httpx.Response:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            sent = {"prompt": prompt, "max_tokens": 1}
            asked = asyncio.create_task(client.post("/v1/completions", json=sent))
            killed: set[int] = set()
            while not asked.done():
                status = (await client.get("/v1/status")).json()
                phases = [request["phase"] for request in status["requests"]]
                pid = status["engine"]["pid"]
                if "prefill" in phases and pid not in killed:
                    killed.add(pid)
                    os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.05)
            assert len(killed) == 2
            return await asked

    response = asyncio.run(poison())
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "engine_restarted"
    until(lambda: server.health() == 200, "a new engine")
    assert server.http.post("/v1/chat/completions", json=body(4)).status_code == 200


def test_children_end_when_the_front_is_killed(server: Server) -> None:
    """On Linux and macOS alike: they notice that their socket closed. `server` ends with this."""
    kin = children(server.process.pid)
    assert len(kin) >= 2
    server.process.kill()
    server.process.wait()
    until(lambda: not any(map(alive, kin)), "all children ended")
