"""Events of the engine on a real connection: written at once, or added up until they are read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from bushel.core import Event, TextDelta
from bushel.server.errors import cancelled
from bushel.server.service.job import GenerationJob
from bushel.server.service.ticket import Live, Ticket
from tests.depth import often
from tests.server.scripted_service import Service, events, request_bytes, run, served, until
from tests.server.test_slow_readers import live

CHAT = "/v1/chat/completions"
LINE = "x" * 999 + "\n"
TOKENS = 2000  # 2 MB of text: more than a connection and the system keep


class Said:
    """Reads all text as text."""

    def feed(self, text: str) -> list[Any]:
        return [TextDelta(text)]

    def finish(self) -> list[Any]:
        return []

    def reason(self, finish: Any) -> Any:
        return finish


class Engineless(Service):
    """The test plays the engine."""

    requests: list[Live]
    gone: list[Live]

    async def open(self, job: GenerationJob, wake: Callable[[], None]) -> Any:
        request = live(job.params.n, wake)
        request.accepted.set_result(None)
        self.requests.append(request)

        def decode(ids: Any) -> str:
            return "".join(f"{token:06d}{LINE}" for token in ids)

        return Ticket(request, decode, self.gone.append, Said)


def engineless() -> Engineless:
    service = Engineless()
    service.requests, service.gone = [], []
    return service


def say(request: Live, token: int, choice: int = 0, finish: Any = None) -> None:
    request.take(Event("r", choice, (token,), finish_reason=finish), 0.0)
    request.wake()


async def asking(port: int, **body: Any) -> socket.socket:
    """A client whose system keeps little for it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", port))
    messages = [{"role": "user", "content": "Hello"}]
    asked = {"messages": messages, "stream": True, **body}
    await loop.sock_sendall(client, request_bytes(CHAT, asked, connection="close"))
    return client


async def received(client: socket.socket) -> list[Any]:
    """The events of a reply that is read to its end."""
    loop, got = asyncio.get_running_loop(), bytearray()
    while data := await loop.sock_recv(client, 1 << 16):
        got += data
    return events(_unchunked(bytes(got).partition(b"\r\n\r\n")[2]).decode())


def _unchunked(body: bytes) -> bytes:
    whole = bytearray()
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole += body[:length]
        assert body[length : length + 2] == b"\r\n"
        body = body[length + 2 :]
    return bytes(whole)


def texts(chunks: list[Any], choice: int = 0) -> list[str]:
    choices = [chunk["choices"][0] for chunk in chunks if chunk != "data: [DONE]"]
    found = [one["delta"].get("content") for one in choices if one["index"] == choice]
    return [text for text in found if text]


@pytest.mark.parametrize("reads", often([False, True], True))
def test_a_client_that_stops_reading_and_goes_on_gets_everything_in_fewer_events(
    reads: bool,
) -> None:
    """And what waits for it is not written ahead. The control reads all along."""

    async def work() -> tuple[list[str], int]:
        service = engineless()
        async with served(service) as port:
            client = await asking(port)
            await until(lambda: bool(service.requests))
            [request] = service.requests
            reading = asyncio.create_task(received(client)) if reads else None
            for token in range(TOKENS):
                say(request, token)
                await asyncio.sleep(0.0005 if reads else 0)
            waiting = len(request.events)
            say(request, TOKENS, finish="stop")
            return texts(await (reading or received(client))), waiting

    found, waiting = run(work())
    assert "".join(found) == "".join(f"{token:06d}{LINE}" for token in range(TOKENS + 1))
    if reads:
        assert len(found) > TOKENS / 2
    else:
        assert len(found) < TOKENS / 2
        assert waiting > TOKENS / 2


def test_who_leaves_in_the_middle_of_a_stream_ends_it_and_nobody_elses() -> None:
    async def work() -> None:
        service = engineless()
        async with served(service) as port:
            clients = [await asking(port) for _ in range(2)]
            await until(lambda: len(service.requests) == 2)
            leaving, staying = service.requests
            for token in range(20):
                say(leaving, token)
                say(staying, token)
                if token == 5:
                    clients[0].close()
                await asyncio.sleep(0.001)
            await until(lambda: leaving in service.gone)
            assert staying not in service.gone
            say(leaving, 20)  # the engine may not know yet
            say(staying, 20, finish="stop")
            chunks = await received(clients[1])
            assert len(texts(chunks)) == 21
            assert chunks[-1] == "data: [DONE]"

    run(work())


def test_a_stream_that_is_held_when_its_client_leaves_is_ended() -> None:
    async def work() -> None:
        service = engineless()
        async with served(service) as port:
            client = await asking(port)
            await until(lambda: bool(service.requests))
            [request] = service.requests
            for token in range(TOKENS):
                say(request, token)
                await asyncio.sleep(0)
            assert request.events
            client.close()
            await until(lambda: service.gone == [request])

    run(work())


def test_two_choices_of_one_step_are_told_in_their_order() -> None:
    async def work() -> None:
        service = engineless()
        async with served(service) as port:
            client = await asking(port, n=2)
            await until(lambda: bool(service.requests))
            [request] = service.requests
            for token in range(5):
                for choice in range(2):
                    finish = "stop" if token == 4 else None
                    event = Event("r", choice, (10 * choice + token,), finish_reason=finish)
                    request.take(event, 0.0)
                request.wake()
                await asyncio.sleep(0.001)
            chunks = await received(client)
        for choice in range(2):
            expected = [f"{10 * choice + token:06d}{LINE}" for token in range(5)]
            assert texts(chunks, choice) == expected
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]]
        assert reasons.count("stop") == 2

    run(work())


@pytest.mark.parametrize("held", often([False, True], True))
def test_an_error_in_the_middle_comes_behind_all_that_was_said(held: bool) -> None:
    """Also where the client reads none of it until then."""

    async def work() -> None:
        service = engineless()
        async with served(service) as port:
            client = await asking(port)
            await until(lambda: bool(service.requests))
            [request] = service.requests
            count = TOKENS if held else 3
            for token in range(count):
                say(request, token)
                await asyncio.sleep(0)
            assert bool(request.events) == held
            request.fail(cancelled())
            *chunks, error = await received(client)
        assert "".join(texts(chunks)) == "".join(f"{token:06d}{LINE}" for token in range(count))
        assert error["error"]["code"] == cancelled().code

    run(work())
