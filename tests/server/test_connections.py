"""Clients that leave, read slowly, or send headers that never end; all over real connections."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace
from typing import Any

import httpx
import pytest

from bushel.server.http.sse import KEEPALIVE
from bushel.server.options import Limits
from tests.depth import one_in

from .scripted_service import (
    Service,
    events,
    options,
    playing,
    request_bytes,
    run,
    said,
    served,
    until,
)

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Until the server ends the connection, in whatever way."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def health(port: int) -> int:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{port}/health")).status_code


def limited(**limits: Any) -> Any:
    return options(limits=replace(Limits(), **limits))


# -- leaving -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_leaving_while_queued_ends_the_waiting(path: str, stream: bool) -> None:
    """A request that is not admitted yet goes with its client. B47."""

    async def work() -> None:
        service = Service(gate=asyncio.Event())
        body = {**HELLO, "prompt": ["a", "b"], "stream": stream}
        count = 2 if path == COMPLETIONS else 1
        async with served(service) as port:
            _, writer = await connect(port)
            writer.write(request_bytes(path, body))
            await until(lambda: service.opening == count)
            writer.transport.abort()
            await until(lambda: service.opening == 0)
            assert service.given_up == count
            assert service.tickets == []

    run(work())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", one_in(2, [CHAT, COMPLETIONS]))
def test_leaving_while_it_runs_aborts_at_once(path: str, stream: bool) -> None:
    """Whether it streams or not, the engine is told at once. B47."""

    async def work() -> None:
        never = asyncio.Event()
        service = Service(playing([said("a")], never, [said("b", finish="stop")]))
        body = {**HELLO, "prompt": ["a", "b"], "stream": stream}
        count = 2 if path == COMPLETIONS else 1
        async with served(service) as port:
            _, writer = await connect(port)
            writer.write(request_bytes(path, body))
            await until(lambda: [ticket.reads for ticket in service.tickets] == [2] * count)
            assert all(ticket.left is None for ticket in service.tickets)  # control
            writer.close()
            await until(lambda: all(ticket.left for ticket in service.tickets))
            assert {ticket.left for ticket in service.tickets} == {"CancelledError"}
            never.set()
            await health(port)
            assert [ticket.reads for ticket in service.tickets] == [2] * count  # nobody reads on

    run(work())


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_after_the_last_event_is_no_abort(stream: bool) -> None:
    """A consumer that stops reading then has had everything. B47."""

    async def work() -> None:
        service = Service()
        async with served(service) as port:
            reader, writer = await connect(port)
            writer.write(request_bytes(CHAT, {**HELLO, "stream": stream}))
            await reader.readuntil(b'"stop"')
            writer.transport.abort()
            await until(lambda: service.tickets[0].left is not None)
            assert service.tickets[0].left == "done"
            assert await health(port) == 200

    run(work())


def test_one_that_leaves_does_not_disturb_the_others() -> None:
    async def work() -> None:
        go = asyncio.Event()
        service = Service(playing([said("a")], go, [said("b", finish="stop")]))
        async with served(service) as port:
            streams = [await connect(port) for _ in range(4)]
            for _, writer in streams:
                writer.write(request_bytes(CHAT, {**HELLO, "stream": True}, connection="close"))
            await until(lambda: [ticket.reads for ticket in service.tickets] == [2] * 4)
            streams[0][1].transport.abort()
            await until(lambda: any(ticket.left for ticket in service.tickets))
            go.set()
            texts = [await reader.read() for reader, _ in streams[1:]]
            assert all(b'"content":"b"' in text and b"[DONE]" in text for text in texts)

    run(work())


def test_leaving_with_requests_in_the_pipe_ends_the_running_one() -> None:
    async def work() -> None:
        service = Service(playing([said("a")], asyncio.Event()))
        async with served(service) as port:
            _, writer = await connect(port)
            writer.write(request_bytes(CHAT, {**HELLO, "stream": True}) + request_bytes("/health"))
            await until(lambda: bool(service.tickets) and service.tickets[0].reads == 2)
            writer.transport.abort()
            await until(lambda: service.tickets[0].left == "CancelledError")

    run(work())


# -- silence and slowness ----------------------------------------------------------------------


def test_a_silent_stream_is_kept_alive_with_comments() -> None:
    """Comments only, and the events are what they would have been without them. B54."""

    async def work() -> tuple[bytes, bytes]:
        go = asyncio.Event()
        service = Service(
            playing([said("a")], go, [said("b", finish="stop")]),
            options=options(keepalive_seconds=0.02),
        )
        async with served(service) as port:
            reader, writer = await connect(port)
            request = request_bytes(CHAT, {**HELLO, "stream": True}, connection="close")
            writer.write(request)
            waited = await reader.readuntil(KEEPALIVE)
            waited += await reader.readuntil(KEEPALIVE)
            go.set()
            return waited, await reader.read()

    waited, rest = run(work())
    assert waited.count(KEEPALIVE) == 2
    assert b'"content":"a"' in waited
    assert b'"content":"b"' in rest
    assert rest.count(b'"finish_reason":"stop"') == 1


def test_the_status_line_waits_for_the_engine() -> None:
    """No 200 before the request was accepted, however long that takes."""

    async def work() -> bytes:
        gate = asyncio.Event()
        service = Service(gate=gate, options=options(keepalive_seconds=0.01))
        async with served(service) as port:
            reader, writer = await connect(port)
            writer.write(request_bytes(CHAT, {**HELLO, "stream": True}))
            await until(lambda: service.opening == 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.1)
            gate.set()
            return await reader.readline()

    assert run(work()).split()[1] == b"200"


def _slow_reader(port: int) -> socket.socket:
    """Asks for a stream, and keeps little of what it does not read."""
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    slow.connect(("127.0.0.1", port))
    slow.sendall(request_bytes(CHAT, {**HELLO, "stream": True}))
    return slow


def test_a_reader_that_takes_nothing_is_dropped_while_others_go_on() -> None:
    async def work() -> None:
        big = "x" * 65536
        service = Service(
            lambda job: [[said(big, tokens=1)] for _ in range(600)] + [[said("", finish="stop")]],
            options=limited(write_seconds=1.0),
        )
        async with served(service) as port:
            slow = _slow_reader(port)
            await until(lambda: bool(service.tickets))
            ticket = service.tickets[0]
            async with httpx.AsyncClient(timeout=20) as client:
                url = f"http://127.0.0.1:{port}{CHAT}"
                reply = await client.post(url, json={**HELLO, "stream": True})
            assert len(reply.text) > 600 * 65536
            assert reply.text.endswith("data: [DONE]\n\n")
            await until(lambda: ticket.left is not None)
            assert ticket.left == "CancelledError"
            assert ticket.reads < 200  # back-pressure: nobody asked for what nobody takes
            slow.close()

    run(work())


@pytest.mark.long
def test_a_slow_reader_that_does_read_gets_everything() -> None:
    """Control for the one that is dropped: the same client, taking a little now and then.

    600 pieces, 5 ms apart at least: longer than `write_seconds` in all.
    """

    async def work() -> int:
        big = "x" * 65536
        service = Service(
            lambda job: [[said(big, tokens=1)] for _ in range(150)] + [[said("", finish="stop")]],
            options=limited(write_seconds=2.0),
        )
        async with served(service) as port:
            slow = _slow_reader(port)
            slow.setblocking(False)
            loop, found = asyncio.get_running_loop(), bytearray()
            while piece := await loop.sock_recv(slow, 16384):
                found += piece
                if b"[DONE]" in found[-100:]:
                    break
                await asyncio.sleep(0.005)
            slow.close()
            return len(found)

    assert run(work()) > 150 * 65536


@pytest.mark.long
def test_a_whole_reply_that_nobody_takes_does_not_stay_forever() -> None:
    async def work() -> None:
        service = Service(
            lambda job: [[said("x" * (32 << 20), finish="stop", tokens=1)]],
            options=limited(write_seconds=0.2, connections=1),
        )
        async with served(service) as port:
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", port))
            slow.sendall(request_bytes(CHAT, HELLO))
            await until(lambda: bool(service.tickets) and service.tickets[0].left is not None)
            while await health(port) != 200:  # its place is given to somebody else
                await asyncio.sleep(0.02)
            slow.close()

    run(work())


# -- headers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", one_in(2, [True, False]))
@pytest.mark.parametrize(
    "bomb",
    [
        b"".join(b"x%d: y\r\n" % at for at in range(1000)),  # in one piece, as it arrives
        b"".join(b"x%d: y\r\n" % at for at in range(60_000)),
        b"x: " + b"y" * 600_000,
    ],
    ids=["some", "many", "one"],
)
def test_a_header_bomb_is_a_431(bomb: bytes, ended: bool) -> None:
    async def work() -> bytes:
        async with served(Service(options=limited(header_bytes=4096))) as port:
            reader, writer = await connect(port)
            writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + bomb)
            if ended:
                writer.write(b"\r\n\r\n")
            else:
                await asyncio.sleep(0.05)
                writer.write(b"y" * 4096)
            reply = await reader.read()
            assert await health(port) == 200
            return reply

    head, _, body = run(work()).partition(b"\r\n\r\n")
    assert head.split()[1] == b"431"
    assert json.loads(body)["error"]["code"] == "header_too_large"


def test_headers_within_the_limit_are_read() -> None:
    async def work() -> bytes:
        async with served(Service(options=limited(header_bytes=4096))) as port:
            reader, writer = await connect(port)
            writer.write(request_bytes("/health", None, filler="x" * 3800))
            return await reader.readline()

    assert run(work()).split()[1] == b"200"


def test_a_large_body_behind_a_small_header_is_no_header() -> None:
    async def work() -> list[bytes]:
        async with served(Service(options=limited(header_bytes=1024))) as port:
            reader, writer = await connect(port)
            body = {"messages": [{"role": "user", "content": "x" * 200_000}]}
            statuses = []
            for _ in range(3):
                writer.write(request_bytes(CHAT, body))
                statuses.append((await reader.readuntil(b"\r\n")).split()[1])
                await reader.readuntil(b'"reasoning_tokens":0}}}')
            return statuses

    assert run(work()) == [b"200"] * 3


@pytest.mark.parametrize(
    "begun", one_in(2, [b"", b"GET /hea", b"\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x"])
)
def test_a_header_that_does_not_come_ends_the_connection(begun: bytes) -> None:
    async def work() -> bytes:
        async with served(Service(options=limited(read_seconds=0.1))) as port:
            reader, writer = await connect(port)
            writer.write(begun)
            return await rest(reader)

    assert run(work()) == b""


def test_a_long_answer_outlives_the_time_for_headers() -> None:
    async def work() -> bytes:
        go = asyncio.Event()
        service = Service(
            playing([said("a")], go, [said("b", finish="stop")]), limited(read_seconds=0.1)
        )
        async with served(service) as port:
            reader, writer = await connect(port)
            writer.write(request_bytes(CHAT, {**HELLO, "stream": True}, connection="close"))
            await until(lambda: bool(service.tickets) and service.tickets[0].reads == 2)
            writer.write(b"GET /")  # the next request, which will never be complete
            asyncio.get_running_loop().call_later(0.4, go.set)
            return await reader.read()

    assert b"[DONE]" in run(work())


def test_what_is_not_http_gets_an_error_in_the_usual_form() -> None:
    async def work() -> bytes:
        async with served(Service()) as port:
            reader, writer = await connect(port)
            writer.write(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")  # TLS
            return await reader.read()

    head, _, body = run(work()).partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    assert json.loads(body)["error"]["code"] == "malformed_http"


def test_connections_have_a_limit_and_places_are_given_back() -> None:
    async def work() -> tuple[int, int]:
        async with served(Service(options=limited(connections=3))) as port:
            held = [await connect(port) for _ in range(3)]
            await asyncio.sleep(0.05)
            full = await health(port)
            for _, writer in held:
                writer.close()
            while (free := await health(port)) != 200:
                await asyncio.sleep(0.01)
            return full, free

    assert run(work()) == (503, 200)


def test_a_pipe_full_of_requests_is_cut_behind_the_first_few() -> None:
    async def work() -> int:
        go = asyncio.Event()
        service = Service(playing(go, [said("a", finish="stop")]))
        async with served(service) as port:
            reader, writer = await connect(port)
            writer.write(request_bytes(CHAT, HELLO) + request_bytes("/health") * 1000)
            await until(lambda: bool(service.tickets))
            assert await health(port) == 200
            go.set()
            return (await rest(reader)).count(b"HTTP/1.1 200")

    assert run(work()) == 17


def test_streams_over_a_connection_are_what_the_application_says() -> None:
    """The whole way once: chunked, in order, and the connection is used again."""

    async def work() -> list[Any]:
        service = Service(playing([said("a")], [said("b", finish="stop")]))
        async with served(service) as port, httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{port}{CHAT}"
            first = await client.post(url, json={**HELLO, "stream": True})
            second = await client.post(url, json={**HELLO, "stream": True})
            assert len(service.tickets) == 2
            return [events(first.text), events(second.text)]

    first, second = run(work())
    assert [it["choices"][0]["delta"] for it in first[:-1]] == [
        {"role": "assistant", "content": ""},
        {"content": "a"},
        {"content": "b"},
        {},
    ]
    assert len(first) == len(second)
