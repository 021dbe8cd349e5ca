"""A streamed HTTP answer at little cost: the machine under test often runs the client, too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_LINE = 1 << 20  # bytes of a line of headers at most
_DATA = b"data:"
_END = b"[DONE]"
_TOLD = 300  # characters of an error that is shown


class RequestFailed(Exception):
    """An error instead of an answer, or an answer that did not come to its end."""


@dataclass(frozen=True)
class HttpTarget:
    url: str  # without /v1
    key: str | None = None

    def head(self, path: str, length: int) -> bytes:
        parts = urlsplit(self.url)
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        return (
            f"POST {parts.path}{path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{key}"
            "Content-Type: application/json\r\nAccept: text/event-stream\r\n"
            f"Content-Length: {length}\r\nConnection: close\r\n\r\n"
        ).encode()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self.url)
        tls = parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
        return await asyncio.open_connection(parts.hostname, port, limit=_LINE, ssl=tls or None)


async def streamed(to: HttpTarget, path: str, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """The data of every event as it comes, without the last one. RequestFailed, or OSError, if
    there is no such answer.
    """
    payload = json.dumps(body).encode()
    reader, writer = await to.connect()
    try:
        writer.write(to.head(path, len(payload)) + payload)
        await writer.drain()
        status, headers = await _head(reader)
        pieces = _body(reader, headers)
        if status != 200:
            raise RequestFailed(f"{status}: {_message(b''.join([it async for it in pieces]))}")
        async for data in _events(pieces):
            yield data
    except (EOFError, ValueError) as error:
        raise RequestFailed("the answer broke off") from error
    finally:
        writer.close()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes]]:
    first = (await reader.readline()).split()
    if len(first) < 2:
        raise RequestFailed("the connection was closed without an answer")
    status = int(first[1])
    headers: dict[bytes, bytes] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    return status, headers


async def _body(
    reader: asyncio.StreamReader, headers: Mapping[bytes, bytes]
) -> AsyncIterator[bytes]:
    if b"chunked" in headers.get(b"transfer-encoding", b""):
        while size := int((await reader.readline()).partition(b";")[0], 16):
            yield (await reader.readexactly(size + 2))[:-2]
    elif b"content-length" in headers:
        yield await reader.readexactly(int(headers[b"content-length"]))
    else:
        while piece := await reader.read(1 << 16):
            yield piece


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(_DATA):
                data = line[len(_DATA) :].strip()
                if data == _END:
                    return
                yield data
    raise RequestFailed("the answer broke off")


def _message(payload: bytes) -> str:
    text = payload.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(text.split())[:_TOLD]
