"""Questions about tokens go the way of every request: admitted, shown, given up and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from bushel.core.wire import Encode, Made
from bushel.server.counting import Counting
from tests.depth import often, one_in

from .conftest import QUEUE
from .server_process import Server, children, until

TALK = {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 4}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "tokenize": ("/tokenize", {"prompt": "What is 3 + 4?"}),
    "detokenize": ("/detokenize", {"tokens": [5, 6, 7]}),
    "count_tokens": ("/v1/messages/count_tokens", {"messages": TALK["messages"]}),
}


@pytest.fixture
def server(several_keys: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setitem(several_keys.http.headers, "authorization", "Bearer root")
    return several_keys


def worker_of(server: Server) -> int:
    def command(pid: int) -> str:
        shown = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(shown, capture_output=True, text=True).stdout

    [found] = [
        child for child in children(server.process.pid) if "bushel.chat.process" in command(child)
    ]
    return found


@contextlib.contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Its only worker does nothing meanwhile, so that whatever needs it waits."""
    pid = worker_of(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def ask(server: Server, key: str, api: str) -> httpx.Response:
    path, body = ASKED[api]
    return server.http.post(path, json=body, headers={"authorization": f"Bearer {key}"})


def running(server: Server) -> list[str]:
    return [request["api"] for request in server.status()["requests"]]


@pytest.mark.parametrize("api", one_in(3, ASKED))
def test_who_asks_and_goes_leaves_nothing_waiting(server: Server, api: str) -> None:
    """A question whose client left is gone from status, and recorded as such. B47, B53."""
    path, body = ASKED[api]
    payload = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: alice\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    with stopped(server):
        for _ in range(2):  # one that a worker has, one that waits
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(head.encode() + payload)
                until(lambda: running(server) == [api], "it is shown")
            until(lambda: running(server) == [], "it is gone")
            last = server.status()["recent"][0]
            assert (last["api"], last["status"]) == (api, 499)
    assert ask(server, "bob", api).status_code == 200


def test_many_questions_get_a_429_and_leave_room_for_another_key(server: Server) -> None:
    """All that were admitted are answered. B51, B67."""
    with ThreadPoolExecutor() as threads:
        with stopped(server):
            asked = []
            for count in range(1, QUEUE // 2 + 1):
                asked.append(threads.submit(ask, server, "alice", "tokenize"))
                until(lambda count=count: len(running(server)) == count, "it waits")
            refused = [ask(server, "alice", api) for api in ASKED]
            asked.append(threads.submit(ask, server, "bob", "tokenize"))
            until(lambda: len(running(server)) == QUEUE // 2 + 1, "it is admitted")
        replies = [it.result() for it in asked]
    assert [it.status_code for it in refused] == [429] * 3
    assert all(int(it.headers["retry-after"]) >= 1 for it in refused)
    assert [reply.status_code for reply in replies] == [200] * len(replies)
    assert len({reply.text for reply in replies}) == 1


def test_a_question_can_be_cancelled_and_has_a_record(server: Server) -> None:
    """Under the id that its answer carries. B53."""
    with ThreadPoolExecutor() as threads:
        with stopped(server):
            asked = threads.submit(ask, server, "alice", "count_tokens")
            until(lambda: running(server) == ["count_tokens"], "it is shown")
            name = server.status()["requests"][0]["id"]
            cancelled = server.http.delete(f"/v1/requests/{name}")
        reply = asked.result()
    assert cancelled.status_code == 200
    assert (reply.status_code, reply.headers["request-id"]) == (409, name)
    answered = ask(server, "alice", "tokenize")
    last = server.status()["recent"][0]
    assert last["id"] == answered.headers["x-request-id"]
    assert (last["api"], last["prompt_tokens"]) == ("tokenize", answered.json()["count"])
    server.logged(f"{last['id']} tokenize")
    assert 'bushel:requests_total{api="tokenize"' in server.http.get("/metrics").text


@pytest.mark.long
@pytest.mark.parametrize("unit", often(["word and ", "\U0001f600", "<|im_start|>"], "<|im_start|>"))
def test_ten_megabytes_cost_no_worker_its_life(server: Server, unit: str) -> None:
    """A text far beyond the context is a 400 which says how much is counted. B67."""
    worker = worker_of(server)
    text = unit * (10_000_000 // len(unit.encode()))
    talk = [{"role": "user", "content": text}]
    for path, body in (
        ("/tokenize", {"prompt": text}),
        ("/tokenize", {"messages": talk}),
        ("/v1/messages/count_tokens", {"messages": talk}),
        ("/v1/chat/completions", {"messages": talk}),
    ):
        reply = server.http.post(path, json=body)
        assert reply.status_code == 400
        assert any(f"{most} " in reply.text for most in (65535, 65536, 2 * 65536)), reply.text
    assert worker_of(server) == worker


def test_a_count_is_the_prompt_tokens_of_what_it_counts(server: Server) -> None:
    """Also of a text beyond the context, which nothing could be asked about. B72."""
    http = server.http
    count = http.post("/v1/messages/count_tokens", json=TALK).json()["input_tokens"]
    usage = http.post("/v1/messages", json=TALK).json()["usage"]
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert count == sum(usage[part] for part in parts)
    asked = http.post("/v1/chat/completions", json=TALK).json()["usage"]["prompt_tokens"]
    body = {"messages": TALK["messages"]}
    assert asked == http.post("/tokenize", json=body).json()["count"] == count
    text = "a " * 40_000
    assert http.post("/tokenize", json={"prompt": text}).json()["count"] > 65536


# -- in turn ---------------------------------------------------------------------------------------


class Pool:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.answers: list[asyncio.Future[Any]] = []

    async def ask(self, message: Encode, *whose: str) -> Any:
        self.begun.append(message.id)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    async def answer(self) -> None:
        next(answer for answer in self.answers if not answer.done()).set_result(
            (Made("", (), {}), b"")
        )
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_owners_take_turns_and_those_who_left_are_passed_over() -> None:
    """Eight abandoned questions cost what the one that had begun costs. B67."""

    async def work() -> None:
        pool = Pool()
        counting = Counting(pool, 2)  # type: ignore[arg-type]
        names = ["a0", "a1", "a2", "a3", "b0", "b1"]
        asked = {
            name: asyncio.ensure_future(counting.ask(name[0], Encode(name, ""))) for name in names
        }
        await settled()
        assert pool.begun == ["a0"]
        for gone in ("a0", "a1", "b0"):
            asked[gone].cancel()
        await settled()
        assert pool.begun == ["a0"]  # a worker still has it
        for _ in range(4):
            await pool.answer()
            if len(pool.begun) == 4:
                break
        assert pool.begun == ["a0", "b1", "a2", "a3"] or pool.begun == ["a0", "a2", "b1", "a3"]
        await pool.answer()
        late = asyncio.ensure_future(counting.ask("c", Encode("c0", "")))
        await settled()
        assert pool.begun[-1] == "c0"  # nothing is held by those who left
        await pool.answer()
        await late

    asyncio.run(work())


def test_with_more_workers_one_is_left_for_requests() -> None:
    async def work() -> None:
        for workers, most in ((1, 1), (2, 1), (4, 3)):
            pool = Pool()
            counting = Counting(pool, workers)  # type: ignore[arg-type]
            messages = [Encode(f"{it}", "") for it in range(9)]
            asked = [asyncio.ensure_future(counting.ask("", message)) for message in messages]
            await settled()
            assert len(pool.begun) == most
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(work())
