"""An engine that dies or hangs takes its own replies with it, and nothing else (B47, B52)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.server_process import FEW, PATIENCE, Server, alive, children, serving, until

STREAMS = int(os.environ.get("BUSHEL_TEST_STREAMS", "12"))  # as many rows decode; more wait
QUEUED = 6


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*FEW, "--max-num-seqs", str(STREAMS), "--hang-seconds", "5") as server:
        yield server


@pytest.fixture(scope="module")
def other() -> Iterator[Server]:
    """The more engines a server has lost lately, the longer it waits with the next one."""
    with serving(*FEW) as server:
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


async def lose(server: Server, end: Any) -> tuple[list[list[dict[str, Any]]], list[Any], set[int]]:
    """Run streams and queue more requests, end the engine; what each of them got."""
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, limits=limits) as client:
        begun = asyncio.Semaphore(0)
        streams = [asyncio.create_task(stream(client, begun)) for _ in range(STREAMS)]
        for _ in streams:
            await begun.acquire()
        queued = [
            asyncio.create_task(client.post("/v1/chat/completions", json=body(8)))
            for _ in range(QUEUED)
        ]
        while (await client.get("/v1/status")).json()["waiting"] < QUEUED:
            await asyncio.sleep(0.05)
        before = (await client.get("/v1/status")).json()["engine"]["pid"]
        end(before)
        seen = set()
        while (code := (await client.get("/health")).status_code) != 200 or 503 not in seen:
            seen.add(code)
            await asyncio.sleep(0.02)
        assert not alive(before)
        return await asyncio.gather(*streams), await asyncio.gather(*queued), seen | {200}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_running_replies_are_told_and_waiting_ones_are_served(
    server: Server, number: signal.Signals
) -> None:
    """kill -9, and a hang."""
    restarts = server.status()["engine"]["restarts"]
    kin = len(children(server.process.pid))
    streams, queued, healths = asyncio.run(lose(server, lambda pid: os.kill(pid, number)))
    for events in streams:
        assert events[-1]["error"]["code"] == "engine_restarted"
        assert sum("error" in event for event in events) == 1
        assert not any("done" in event for event in events)
        assert all(not it["finish_reason"] for e in events for it in e.get("choices", ()))
    expected = server.http.post("/v1/chat/completions", json=body(8)).json()
    for response in queued:
        assert response.status_code == 200, response.text
        assert response.json()["choices"] == expected["choices"]
    assert healths == {200, 503}
    status = server.status()
    assert status["engine"]["restarts"] == restarts + 1
    assert (status["running"], status["waiting"], status["requests"]) == (0, 0, [])
    assert len(children(server.process.pid)) == kin
    told = server.http.get("/metrics").text
    assert set(re.findall(r'engine_restarts_total{.*reason="(.*?)"}', told)) == {"died", "hung"}


def test_a_reply_that_is_not_streamed_gets_a_503_to_retry(server: Server) -> None:
    """After an abort from below Python."""

    async def lost() -> httpx.Response:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            sent = body(20_000, ignore_eos=True)
            asked = asyncio.create_task(client.post("/v1/chat/completions", json=sent))
            while True:
                status = (await client.get("/v1/status")).json()
                if any(request["completion_tokens"] for request in status["requests"]):
                    break
                await asyncio.sleep(0.05)
            os.kill(status["engine"]["pid"], signal.SIGABRT)
            return await asked

    response = asyncio.run(lost())
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["error"]["code"] == "engine_restarted"
    until(lambda: server.health() == 200, "a new engine")


def test_a_request_that_was_there_when_two_engines_died_is_given_up(other: Server) -> None:
    """It may be the cause: it must not take down one engine after the other."""
    prompt = "word " * 30_000  # prefills long enough to be there twice

    async def poison() -> httpx.Response:
        async with httpx.AsyncClient(base_url=other.url, timeout=PATIENCE) as client:
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
    until(lambda: other.health() == 200, "a new engine")
    assert other.http.post("/v1/chat/completions", json=body(4)).status_code == 200


def test_without_an_engine_there_is_no_word_of_its_cache(other: Server) -> None:
    pid, answers = other.status()["engine"]["pid"], list[httpx.Response]()
    os.kill(pid, signal.SIGSTOP)
    asked = threading.Thread(target=lambda: answers.append(other.http.delete("/v1/cache")))
    asked.start()
    asked.join(0.5)
    os.kill(pid, signal.SIGKILL)
    asked.join()
    assert answers[0].status_code == 503
    assert answers[0].json()["error"]["code"] == "engine_restarted"
    for method in ("GET", "DELETE"):
        refused = other.http.request(method, "/v1/cache")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "engine_unavailable"
    until(lambda: other.health() == 200, "a new engine")
    assert other.http.delete("/v1/cache").json()["on"]


def test_children_end_when_the_front_is_killed(other: Server) -> None:
    """On Linux and macOS alike: they notice that their socket closed. `other` ends with this."""
    kin = children(other.process.pid)
    assert len(kin) >= 2
    other.process.kill()
    other.process.wait()
    until(lambda: not any(map(alive, kin)), "all children ended")
