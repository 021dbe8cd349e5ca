"""Bodies that are too large, too deep, too slow, or no JSON at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest

from bushel.server.errors import ApiError
from bushel.server.http.json_decode import decode
from bushel.server.options import Limits

from .scripted_service import PATIENCE, Service, ask, options, request_bytes, run, served

CHAT = "/v1/chat/completions"


def send(content: Any, service: Service | None = None, **limits: Any) -> httpx.Response:
    service = service or Service(options=options(limits=replace(Limits(), **limits)))
    headers = {"content-type": "application/json"}
    return ask(service, "POST", CHAT, content=content, headers=headers)


def message(text: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}]}).encode()


def nested(depth: int) -> bytes:
    """A good request with something deep in it; the body and `metadata` are two levels."""
    inner = b"[" * (depth - 2) + b"]" * (depth - 2)
    return message("x")[:-1] + b', "metadata": {"deep": ' + inner + b"}}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"messages": NaN}',
        b'{"temperature": Infinity}',
        b'{"temperature": 1e999}',
        b'{"seed": ' + b"9" * 5000 + b"}",
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"model": "\\ud800x"}',
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"{'a': 1}",
        b"\x00",
    ],
    ids=lambda it: str(it[:20]),
)
def test_what_is_not_json_is_a_400(body: bytes) -> None:
    reply = send(body)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("body", [b"null", b"[]", b"5", b'"text"', b"[{}]"])
def test_json_that_is_no_object_is_a_400(body: bytes) -> None:
    reply = send(body)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_a_missing_field_is_named() -> None:
    reply = send(b"{}")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages")
    assert reply.json()["error"]["message"] == "messages is missing."


def test_nesting_has_a_limit() -> None:
    assert send(nested(10), depth=10).status_code == 200
    reply = send(nested(11), depth=10)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_json")
    assert "10 levels" in reply.json()["error"]["message"]


def test_nesting_beyond_what_a_stack_holds_is_the_same_400() -> None:
    reply = send(nested(100_000))
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_json")


def test_many_brackets_that_are_not_deep_are_fine() -> None:
    assert (
        decode(b"[" + b",".join([b"[]"] * 1000) + b"]", replace(Limits(), depth=2)) == [[]] * 1000
    )
    assert decode(json.dumps("[" * 1000).encode(), replace(Limits(), depth=2)) == "[" * 1000


def test_small_values_by_the_million_are_refused_before_they_take_memory() -> None:
    with pytest.raises(ApiError) as refused:
        decode(b"[" + b"[]," * (1 << 22) + b"[]]", Limits())
    assert refused.value.status == 413


@pytest.mark.parametrize("declared", [True, False])
def test_size_has_a_limit_whether_it_is_declared_or_not(declared: bool) -> None:
    async def parts(content: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(content), 100):
            yield content[at : at + 100]

    def content(size: int) -> Any:
        body = message("x" * (size - len(message(""))))
        return body if declared else parts(body)

    assert send(content(1000), body_bytes=1000).status_code == 200
    reply = send(content(1001), body_bytes=1000)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")


def test_a_large_body_is_read_whole() -> None:
    service = Service()
    text = "All work and no play. " * 200_000
    assert send(message(text), service).status_code == 200
    messages = msgspec.msgpack.decode(service.jobs[0].request["messages"])
    assert messages[0]["content"] == text


def test_a_declared_size_of_any_length_is_an_answer_and_no_crash() -> None:
    async def work() -> bytes:
        async with served(Service()) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = request_bytes(CHAT, {}).replace(
                b"content-length: 2", b"content-length: " + b"9" * 18
            )
            writer.write(head)
            return await reader.readline()

    assert run(work()).split()[1] == b"413"


def test_a_body_that_does_not_come_is_given_up() -> None:
    async def work() -> tuple[bytes, int]:
        service = Service(options=options(limits=replace(Limits(), read_seconds=0.2)))
        async with served(service) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes(CHAT, {"messages": []})[:-5])
            return await reader.readline(), len(service.jobs)

    status, jobs = run(work())
    assert (status.split()[1], jobs) == (b"408", 0)


def test_a_body_that_stops_is_given_up_however_much_of_it_came() -> None:
    """The time for all of it grows with what came, the time for the next byte does not."""

    async def work() -> bytes:
        service = Service(options=options(limits=replace(Limits(), read_seconds=0.2)))
        async with served(service) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes(CHAT, json.loads(message("x" * (8 << 20))))[:-5])
            return await reader.readline()  # 8 MB were good for 512 seconds

    assert run(work()).split()[1] == b"408"


def test_a_slow_body_that_keeps_coming_is_read() -> None:
    """Control: longer in all than the time for one byte."""

    async def work() -> bytes:
        service = Service(options=options(limits=replace(Limits(), read_seconds=1.0)))
        async with served(service) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            sent = request_bytes(CHAT, json.loads(message("x" * 40_000)))
            for at in range(0, len(sent), 3000):
                writer.write(sent[at : at + 3000])
                await asyncio.sleep(0.1)
            return await reader.readline()

    assert run(work()).split()[1] == b"200"


def test_bodies_share_their_memory_and_small_ones_go_on() -> None:
    """Large ones that do not come to an end leave room for others. B67."""

    async def work() -> None:
        limits = replace(Limits(), body_bytes=1 << 20, bodies_bytes=4 << 20)
        service = Service(options=options(limits=limits))
        large = request_bytes(CHAT, json.loads(message("x" * 1_000_000)))
        async with served(service) as port:
            open_, refused = [], []
            for _ in range(12):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(large[:-5])
                await writer.drain()
                open_.append((reader, writer))
            await asyncio.sleep(0.3)
            for reader, _ in open_:
                with contextlib.suppress(TimeoutError):
                    refused.append(await asyncio.wait_for(reader.readuntil(b"}}"), 0.02))
            assert 6 <= len(refused) <= 10  # 3 MB are held at most, which leaves one for others
            assert all(b" 503 " in it and b"retry-after: 1" in it for it in refused)
            assert all(b"too_many_bodies" in it for it in refused)
            assert await status(port, request_bytes(CHAT, json.loads(message("x" * 50_000)))) == 200
            for _, writer in open_:
                writer.transport.abort()
            await asyncio.sleep(0.1)
            # Memory comes back, and one alone may be as large as any may be.
            assert await status(port, large) == 200

    run(work())


def test_a_body_is_not_refused_for_itself() -> None:
    """However little memory there is for all."""

    async def work() -> int:
        limits = replace(Limits(), body_bytes=1 << 20, bodies_bytes=1)
        async with served(Service(options=options(limits=limits))) as port:
            room = (1 << 20) - len(message(""))
            return await status(port, request_bytes(CHAT, json.loads(message("x" * room))))

    assert run(work()) == 200


async def status(port: int, sent: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    found = int((await reader.readline()).split()[1])
    writer.transport.abort()
    return found


def test_a_client_that_leaves_in_the_middle_of_its_body_starts_nothing() -> None:
    async def work() -> int:
        service = Service()
        async with served(service) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes(CHAT, json.loads(message("x")))[:-5])
            await writer.drain()
            writer.transport.abort()
            async with httpx.AsyncClient() as client:
                for _ in range(3):
                    await client.get(f"http://127.0.0.1:{port}/health")
            return len(service.jobs)

    assert run(work()) == 0


def test_a_client_hears_why_its_large_body_was_refused() -> None:
    """The answer comes before the body is read, and must not be lost by closing on it."""

    async def work() -> int:
        service = Service(options=options(limits=replace(Limits(), body_bytes=8 << 20)))
        async with served(service) as port, httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{port}{CHAT}"
            body = message("x" * (8 << 20))
            headers = {"content-type": "application/json"}
            reply = await client.post(url, content=body, headers=headers)
            again = await client.post(url, content=message("x"), headers=headers)
            assert again.status_code == 200
            return reply.status_code

    assert run(work()) == 413


def test_a_large_body_is_decoded_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another request is answered while it is being decoded, or neither ever is."""
    answered = threading.Event()

    def slowly(data: bytes, depth: int) -> Any:
        if len(data) > 1 << 20:
            assert answered.wait(PATIENCE)
        return decode(data, depth)

    monkeypatch.setattr("bushel.server.http.request_body.decode", slowly)

    async def work() -> int:
        async with served(Service()) as port, httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{port}{CHAT}"
            headers = {"content-type": "application/json"}
            body = message("x" * (2 << 20))
            large = asyncio.create_task(client.post(url, content=body, headers=headers))
            await asyncio.sleep(0.2)
            assert (await client.post(url, content=message("x"), headers=headers)).is_success
            assert not large.done()
            answered.set()
            return (await large).status_code

    assert run(work()) == 200
