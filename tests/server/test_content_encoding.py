"""Bodies that clients compress: read like any other, and bounded by what is in them (B67)."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest

from bushel.server.options import Limits

from .scripted_service import Service, ask, options, run, served

CHAT = "/v1/chat/completions"
PATHS = (CHAT, "/v1/messages", "/v1/responses", "/tokenize")


def message(text: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}]}).encode()


# Without the time, since tests are named after it, which must be the same in all workers.
PACKED = gzip.compress(message("x"), mtime=0)


def body_for(path: str) -> dict[str, Any]:
    if path == "/v1/responses":
        return {"model": "test/model", "input": "Hello"}
    said = {"messages": [{"role": "user", "content": "Hello"}]}
    return {"model": "test/model", "max_tokens": 9, **said} if path == "/v1/messages" else said


def send(
    content: Any, encoding: str, service: Service | None = None, path: str = CHAT, **limits: Any
) -> httpx.Response:
    service = service or Service(options=options(limits=replace(Limits(), **limits)))
    headers = {"content-type": "application/json", "content-encoding": encoding}
    return ask(service, "POST", path, content=content, headers=headers)


PACK: dict[str, Any] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    "identity": bytes,
}


@pytest.mark.parametrize("encoding", PACK)
def test_a_packed_body_is_read(encoding: str) -> None:
    service = Service()
    text = "All work and no play. " * 2000
    assert send(PACK[encoding](message(text)), encoding, service).status_code == 200
    assert service.jobs[0].request["messages"][0]["content"] == text


@pytest.mark.parametrize("path", PATHS)
def test_every_api_takes_one(path: str) -> None:
    packed = gzip.compress(json.dumps(body_for(path)).encode())
    assert send(packed, "gzip", path=path).status_code == 200


def test_members_follow_each_other() -> None:
    """As `cat a.gz b.gz` makes it, and in pieces as they may come."""
    whole = message("Hello")
    packed = gzip.compress(whole[:9]) + gzip.compress(whole[9:])

    async def pieces() -> Any:
        for at in range(len(packed)):
            yield packed[at : at + 1]

    assert send(packed, "gzip").status_code == 200
    assert send(pieces(), "gzip").status_code == 200


def test_a_large_one_is_read_whole() -> None:
    service = Service()
    text = "".join(chr(32 + at * 7919 % 90) for at in range(1 << 20))
    assert send(gzip.compress(message(text)), "gzip", service).status_code == 200
    messages = msgspec.msgpack.decode(service.jobs[0].request["messages"])
    assert messages[0]["content"] == text


@pytest.mark.parametrize(
    "content",
    [
        PACKED[:-9],  # cut off
        PACKED[:-1],
        PACKED[:5],
        b"{}",
        PACKED + b"garbage",
        PACKED[:-8] + b"\0" * 8,  # another checksum
    ],
)
def test_what_is_broken_is_a_400(content: bytes) -> None:
    reply = send(content, "gzip")
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "invalid_content_encoding"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "nonsense"])
def test_an_encoding_that_is_not_known_is_a_415(encoding: str) -> None:
    reply = send(message("x"), encoding)
    assert reply.status_code == 415
    assert reply.json()["error"]["code"] == "unsupported_content_encoding"
    assert "gzip" in reply.json()["error"]["message"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_the_limit_is_of_what_is_in_it(encoding: str) -> None:
    def content(size: int) -> bytes:
        return bytes(PACK[encoding](message("x" * (size - len(message(""))))))

    assert send(content(100_000), encoding, body_bytes=100_000).status_code == 200
    reply = send(content(100_001), encoding, body_bytes=100_000)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")


def bomb(size: int) -> bytes:
    """So many zeros in a thousandth of it: a block that stands by itself, again and again."""
    packer = zlib.compressobj(9, wbits=31)
    first, again = (
        packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
    )
    return first + again * ((size >> 20) - 1) + packer.flush()


def test_a_bomb_takes_no_more_than_a_body_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gigabyte in a megabyte: it is left as soon as it is too long."""
    most = 0
    from bushel.server.http.body_memory import Body

    add = Body.add

    def counted(body: Body, piece: bytes) -> None:
        nonlocal most
        add(body, piece)
        most = max(most, len(body.data))

    monkeypatch.setattr(Body, "add", counted)
    reply = send(bomb(1 << 30), "gzip", body_bytes=4 << 20)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")
    assert 4 << 20 < most < 5 << 20


def test_others_are_served_while_a_bomb_is_unpacked() -> None:
    """The event loop gets its turn between two pieces."""

    async def work() -> None:
        limits = replace(Limits(), body_bytes=64 << 20)
        async with served(Service(options=options(limits=limits))) as port:
            headers = {"content-type": "application/json", "content-encoding": "gzip"}
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                content = bomb(128 << 20)
                hostile = asyncio.create_task(client.post(CHAT, content=content, headers=headers))
                answered = 0
                while not hostile.done():
                    assert (await client.get("/health")).status_code == 200
                    answered += 1
                assert (await hostile).status_code == 413
                assert answered > 3

    run(work())


def test_bombs_share_the_memory_of_all_bodies() -> None:
    """What is unpacked counts, and one that finds no room is told to come again."""
    limits = replace(Limits(), body_bytes=1 << 20, bodies_bytes=3 << 20)

    async def work() -> None:
        async with served(Service(options=options(limits=limits))) as port:
            packed = gzip.compress(message("x" * 900_000))
            head = (
                f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                f"content-encoding: gzip\r\ncontent-length: {len(packed) + 1}\r\n\r\n"
            )
            held = []
            for _ in range(3):  # each lacks a byte, so that it is held
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head.encode() + packed)
                await writer.drain()
                held.append((reader, writer))
            lines = []
            for reader, _ in held:
                try:
                    lines.append(await asyncio.wait_for(reader.readline(), 0.5))
                except TimeoutError:
                    continue
            assert any(b" 503 " in line for line in lines)
            for _, writer in held:
                writer.transport.abort()

    run(work())
