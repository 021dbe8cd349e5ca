"""More connections than file descriptors: each is served or told, and what dies is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from bushel.core import BushelError
from bushel.server.http.descriptors import Reserve, plan
from bushel.server.http.listener import Listener
from tests.server.server_process import FEW, PATIENCE, Server, alive, serving, until

CONNECTIONS = 300
BODY = json.dumps({"prompt": "a", "max_tokens": 2, "stream": True}).encode()
REQUEST = (
    b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(server: Server) -> list[Pair]:
    ways = (asyncio.open_connection("127.0.0.1", server.port) for _ in range(CONNECTIONS))
    return await asyncio.gather(*ways)


async def stream(pair: Pair) -> str:
    """What came back on it: served, refused, or nothing at all."""
    reader, writer = pair
    try:
        writer.write(REQUEST)
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
    except ConnectionError:
        answer = b""
    writer.close()
    if answer.startswith(b"HTTP/1.1 200") and b"[DONE]" in answer:
        return "served"
    told = answer.startswith(b"HTTP/1.1 503") and b"too_many_connections" in answer
    return "refused" if told else f"lost: {answer[:200]!r}"


def idle_then_killed(server: Server) -> None:
    """Idle connections take all there is; then the engine and a worker die, in this order, and
    the worker's replacement as well."""
    before = server.status()  # on a connection that is kept

    async def hold() -> None:
        pairs = await opened(server)
        ended = [before["engine"]["pid"], before["workers"][0]["pid"]]
        for pid in ended:
            os.kill(pid, signal.SIGKILL)
        opening = await asyncio.to_thread(until, lambda: worker(server, ended), "a new worker")
        os.kill(opening, signal.SIGKILL)
        await asyncio.to_thread(until, lambda: server.health() == 200, "both are replaced")
        for _, writer in pairs:
            writer.close()

    asyncio.run(hold())
    assert server.status()["engine"]["restarts"] == before["engine"]["restarts"] + 1


def worker(server: Server, ended: list[int]) -> int | None:
    found = [it["pid"] for it in server.status()["workers"]]
    return next((pid for pid in found if pid not in ended and alive(pid)), None)


async def streams(server: Server) -> list[str]:
    return await asyncio.gather(*map(stream, await opened(server)))


@pytest.mark.long
def test_a_low_limit_is_raised_and_everyone_served() -> None:
    """macOS starts processes with 256."""
    with serving(*FEW, first="ulimit -S -n 256; ulimit -H -n 1024") as server:
        server.status()
        assert set(asyncio.run(streams(server))) == {"served"}


@pytest.mark.long
def test_where_the_limit_cannot_be_raised_some_are_told_to_come_back() -> None:
    with serving(*FEW, first="ulimit -S -n 256; ulimit -H -n 256") as server:
        server.status()
        found = asyncio.run(streams(server))
        assert set(found) == {"served", "refused"}
        assert found.count("served") >= 100
        idle_then_killed(server)


# -- what it is made of ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "workers", "served"),
    [(256, 2, 176), (1024, 2, 848), (10_240, 2, 4096), (256, 16, 148), (256, 64, 52)],
)
def test_connections_leave_room_for_what_is_not_one(limit: int, workers: int, served: int) -> None:
    """A worker takes two."""
    room = plan(limit, 4096, workers)
    assert room.served == served
    assert served + room.refused <= limit - 44 - 2 * workers


def test_a_limit_that_serves_nobody_is_told_at_once() -> None:
    with pytest.raises(BushelError, match="ulimit"):
        plan(48, 4096, 2)
    with pytest.raises(BushelError, match="ulimit"):
        plan(192, 4096, 64)


def test_a_reserve_is_there_when_all_else_is_gone() -> None:
    """In a process of its own, which takes every descriptor. The control: without the reserve
    the same fails."""
    code = """
import os, resource, socket, sys
from bushel.server.http.descriptors import Reserve
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
reserve = Reserve()
if sys.argv[1] == "held":
    reserve.hold()
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for _ in range(2):
    with reserve.lent():
        for it in socket.socketpair(): it.close()
"""
    for held, status in (("held", 0), ("none", 1)):
        ended = subprocess.run([sys.executable, "-c", code, held], capture_output=True, text=True)
        assert ended.returncode == status, ended.stderr


def test_a_reserve_that_others_took_is_held_again_when_they_are_gone() -> None:
    """In a process of its own: while it is lent, somebody takes every descriptor."""
    code = """
import os, resource, socket
from bushel.server.http.descriptors import Reserve
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
def take_all():
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return taken
reserve = Reserve()
reserve.hold()
with reserve.lent():
    taken = take_all()
for it in taken:
    os.close(it)
with reserve.lent():
    pass
take_all()
with reserve.lent():
    for it in socket.socketpair(): it.close()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_a_reserve_lent_to_two_is_taken_back_from_the_last() -> None:
    def descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    reserve = Reserve()
    before = descriptors()
    reserve.hold()
    held = descriptors()
    with contextlib.ExitStack() as second:
        with reserve.lent():
            second.enter_context(reserve.lent())
        assert descriptors() == before
    assert descriptors() == held > before
    for it in reserve._held:
        os.close(it)


def test_who_finds_no_room_is_kept_waiting_and_not_dropped() -> None:
    """Two places, three clients: the third one's bytes are answered when a place is free."""

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            places.add(self)

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

        def connection_lost(self, error: Exception | None) -> None:
            places.discard(self)

    places: set[object] = set()

    async def work() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        listener = Listener(sock, Echo, places, 2)
        pairs = [await asyncio.open_connection(*sock.getsockname()) for _ in range(3)]
        for _, writer in pairs:
            writer.write(b"x")
        assert [await reader.read(1) for reader, _ in pairs[:2]] == [b"x", b"x"]
        waiting = asyncio.create_task(pairs[2][0].read(1))
        await asyncio.wait([waiting], timeout=0.5)
        assert not waiting.done()
        pairs[0][1].close()
        assert await waiting == b"x"
        for _, writer in pairs:
            writer.close()
        listener.close()

    asyncio.run(work())
