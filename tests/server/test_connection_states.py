"""Whatever clients send, in whatever pieces: every connection has a timer, or a reason for none."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bushel.server.http import connection as connection_module
from bushel.server.http.connection import Connection, make_server
from bushel.server.options import Limits
from tests.depth import one_in, some

from .scripted_service import (
    Service,
    application,
    options,
    playing,
    request_bytes,
    run,
    said,
    until,
)

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
SHORT = Limits(
    body_bytes=4096, header_bytes=1024, read_seconds=0.1, write_seconds=0.1, idle_seconds=0.1
)
POST = request_bytes(CHAT, HELLO)
BODY = POST.partition(b"\r\n\r\n")[2]
CHUNKED = POST.partition(b"\r\n\r\n")[0].replace(b"content-length: ", b"x: ")
CHUNKED += b"\r\ntransfer-encoding: chunked\r\n\r\n"
# What a client may send; each may come whole, in pieces, or not to its end.
MESSAGES = [
    POST,
    request_bytes("/health"),
    request_bytes("/health", connection="close"),
    request_bytes("/health").replace(b"1.1", b"1.0"),
    request_bytes(CHAT, HELLO, expect="100-continue"),
    request_bytes(CHAT, HELLO, connection="upgrade", upgrade="h2c"),
    request_bytes("/nowhere", HELLO),
    request_bytes(CHAT, {**HELLO, "stream": True}),
    request_bytes(CHAT, {"messages": "x" * 5000}),
    CHUNKED + b"2\r\n{}\r\n0\r\n\r\n",
    CHUNKED + b"2\r\n{}\r\n0\r\nauthorization: x\r\n\r\n",
    CHUNKED + b"1\r\n \r\n" * 400,
    CHUNKED + b"0\r\n" + b"x: y\r\n" * 400,
    b"GET / HTTP/1.1\r\nx: " + b"y" * 2000,
    b"GET /" + b"y" * 2000,
    b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
    b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@contextlib.asynccontextmanager
async def served(service: Service) -> AsyncIterator[tuple[int, set[Connection]]]:
    """A port, and the connections to it."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = make_server(application(service), service.options)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        await until(lambda: server.started)
        try:
            connections = cast(set[Connection], server.server_state.connections)
            yield sock.getsockname()[1], connections
        finally:
            server.force_exit = server.should_exit = True
            await task


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes | float | None]:
    """Pieces of messages, pauses in seconds, and None where what is asked for is answered."""
    sent = b"".join(draw(st.lists(st.sampled_from(MESSAGES), max_size=4)))
    sent = sent[: draw(st.integers(0, len(sent)))] if draw(st.booleans()) else sent
    cuts = sorted(draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    steps: list[bytes | float | None] = []
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        steps.append(sent[start:end])
        steps.append(draw(st.sampled_from([0.0, 0.002, None])))
    return steps


@pytest.mark.long
@given(st.lists(conversations(), min_size=1, max_size=3))
@settings(max_examples=some(40), suppress_health_check=list(HealthCheck))
def test_nobody_holds_a_connection_by_what_it_sends(clients: list[Any]) -> None:
    """Once what was asked for has been answered, all of them end by themselves. B67."""

    async def work() -> None:
        go = asyncio.Event()
        service = Service(gate=go, options=options(limits=SHORT))
        async with served(service) as (port, connections):

            def check() -> None:
                for connection in connections:
                    connection.check_integrity()

            async def play(steps: list[bytes | float | None]) -> asyncio.StreamWriter:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                for step in steps:
                    if writer.transport.is_closing():
                        break
                    if isinstance(step, bytes):
                        writer.write(step)
                    elif step is None:
                        go.set()
                    await asyncio.sleep(step if isinstance(step, float) else 0)
                    check()
                return writer

            try:
                writers = await asyncio.gather(*map(play, clients))
            finally:
                go.set()
            while connections:
                check()
                await asyncio.sleep(0.01)
            for writer in writers:
                writer.transport.abort()

    run(work())


def test_the_check_finds_a_connection_without_a_timer() -> None:
    """Control."""

    async def work() -> None:
        async with served(Service(options=options(limits=SHORT))) as (port, connections):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /")
            await until(lambda: [it.state for it in connections] == ["header"])
            (connection,) = connections
            connection.check_integrity()
            assert connection._timer is not None
            connection._timer.cancel()
            connection._timer = None
            with pytest.raises(AssertionError):
                connection.check_integrity()
            writer.transport.abort()

    run(work())


@pytest.mark.parametrize(
    "behind", one_in(3, [b"GET /hea", b"\r\n", POST[:-3]]), ids=["line", "break", "body"]
)
def test_half_a_request_behind_a_stream_does_not_hold_the_connection(behind: bytes) -> None:
    """Its time begins when the stream ends. B67."""

    async def work() -> None:
        go = asyncio.Event()
        limits = replace(SHORT, idle_seconds=1000.0 if behind.strip() else 0.1)
        service = Service(gate=go, options=options(limits=limits))
        async with served(service) as (port, connections):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes(CHAT, {**HELLO, "stream": True}))
            await until(lambda: service.opening == 1)
            writer.write(behind)
            await asyncio.sleep(0.3)
            assert len(connections) == 1  # control: it waits for its answer, and nothing else
            go.set()
            await until(lambda: not connections)
            writer.transport.abort()

    run(work())


def test_a_client_whose_socket_takes_no_options_keeps_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B67: macOS refuses them on a socket that its client has reset already."""
    monkeypatch.setattr(connection_module, "_SEND_BYTES", b"")  # refused, with the same error

    async def work() -> bytes:
        async with served(Service(options=options(limits=SHORT))) as (port, connections):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes("/health", connection="close"))
            said = await reader.read()
            await until(lambda: not connections)
            writer.close()
            return said

    assert run(work()).startswith(b"HTTP/1.1 200")


def test_a_client_that_leaves_is_seen_though_it_sent_more() -> None:
    """Its request is given up, though further ones were in the pipe. B47."""

    async def work() -> None:
        service = Service(gate=asyncio.Event(), options=options(limits=SHORT))
        async with served(service) as (port, _):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(POST)
            await until(lambda: service.opening == 1)
            writer.write(request_bytes("/health") + POST)
            await asyncio.sleep(0.02)
            writer.close()
            await until(lambda: service.given_up == 1)

    run(work())


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("wish", ["close, upgrade", "upgrade"])
def test_a_wish_for_another_protocol_is_ignored_on_a_connection_for_one_request(
    wish: str, version: bytes
) -> None:
    async def work() -> bytes:
        async with served(Service(options=options(limits=SHORT))) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            sent = request_bytes(CHAT, HELLO, connection=wish, upgrade="h2c")
            writer.write(sent.replace(b"HTTP/1.1", b"HTTP/" + version))
            return await reader.read()

    assert b"choices" in run(work())


CUT_SHORT = POST.replace(b"content-length: %d" % len(BODY), b"content-length: %d" % (len(BODY) - 1))
LONG_LINE = b"GET /" + b"y" * 2000


@pytest.mark.parametrize(
    ("sent", "answers"),
    one_in(
        2,
        [
            (POST + b"\x01\x02", [b"200"]),
            (CUT_SHORT, [b"400"]),
            (POST + LONG_LINE, [b"200"]),
            (POST + CHUNKED + b"xx\r\n", [b"200"]),
            (POST + CHUNKED + b"1\r\n \r\n" * 400, [b"200"]),
            (request_bytes("/health") * 2 + b"\x01", [b"200"] * 2),
            (request_bytes("/health") * 20, [b"200"] * 17),
        ],
    ),
    ids=["junk", "cut short", "long line", "bad chunk", "small chunks", "after two", "too many"],
)
def test_what_was_asked_before_a_fault_is_answered(sent: bytes, answers: list[bytes]) -> None:
    """The last answer says that the connection ends, and it does."""

    async def work() -> bytes:
        async with served(Service(options=options(limits=SHORT))) as (port, connections):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            said = await reader.read()
            for it in connections:
                it.check_integrity()
            writer.close()
            await until(lambda: not connections)
            return said

    said = run(work())
    assert re.findall(rb"HTTP/1.1 (\d+)", said) == answers
    closing = [b"connection: close" in it for it in said.split(b"HTTP/1.1")[1:]]
    assert closing == [False] * (len(answers) - 1) + [True]


@pytest.mark.parametrize("begun", [False, True])
def test_who_sends_too_much_ahead_is_answered_unless_the_answer_has_begun(begun: bool) -> None:
    """B67: nothing of it is kept."""

    async def work() -> bytes:
        go = asyncio.Event()
        service = Service(playing([said("a")], go, [said("b", finish="stop")]))
        service.options = options(limits=SHORT)
        async with served(service) as (port, connections):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes(CHAT, {**HELLO, "stream": begun}))
            await until(lambda: [ticket.reads for ticket in service.tickets] == [2])
            (connection,) = connections
            for _ in range(4):
                writer.write(b"GET /" + b"y" * 600)
                await asyncio.sleep(0.01)
                connection.check_integrity()
            go.set()
            try:
                return await reader.read()
            except OSError:
                return b"aborted"

    assert run(work()).startswith(b"aborted" if begun else b"HTTP/1.1 200")


def test_requests_in_a_row_are_answered_in_order() -> None:
    """Control for what is kept of them."""

    async def work() -> list[bytes]:
        go = asyncio.Event()
        async with served(Service(gate=go, options=options(limits=SHORT))) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            last = request_bytes("/nowhere", connection="close")
            for piece in (POST + request_bytes("/health") + last[:9], last[9:]):
                writer.write(piece)
                await asyncio.sleep(0.02)
            go.set()
            return re.findall(rb"HTTP/1.1 (\d+)", await reader.read())

    assert run(work()) == [b"200", b"200", b"404"]
