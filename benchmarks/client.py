"""A client that costs little: the machine under test often has to run it too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from bushel.commands.bench.http_stream import HttpTarget, streamed
from bushel.commands.bench.http_stream import RequestFailed as Failed

__all__ = ["Failed", "chunks", "get", "post", "stream", "text_of"]


async def _post(
    port: int, path: str, body: Mapping[str, Any]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    payload = json.dumps(body).encode()
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n".encode()
        + payload
    )
    await writer.drain()
    return reader, writer


def chunks(port: int, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """The data of every chunk of a streamed chat reply as it arrives, without the final [DONE]."""
    to = HttpTarget(f"http://127.0.0.1:{port}")
    return streamed(to, "/v1/chat/completions", {**body, "stream": True})


async def stream(port: int, body: Mapping[str, Any]) -> list[bytes]:
    """All chunks of a streamed chat reply, undecoded."""
    return [chunk async for chunk in chunks(port, body)]


def text_of(chunks: list[bytes]) -> str:
    """The reply's text; Failed if it has not exactly one finish reason."""
    choices = [it for chunk in chunks for it in json.loads(chunk).get("choices", ())]
    if sum(it["finish_reason"] is not None for it in choices) != 1:
        raise Failed("not exactly one finish reason")
    return "".join(it["delta"].get("content") or "" for it in choices)


async def post(port: int, path: str, body: Mapping[str, Any]) -> Any:
    """A whole answer, decoded; Failed if it is an error."""
    reader, writer = await _post(port, path, body)
    head, _, payload = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if b" 200 " not in head.splitlines()[0]:
        raise Failed(payload.decode(errors="replace").strip())
    return json.loads(payload)


async def get(port: int, path: str) -> int:
    """The status of a short answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    status = int((await reader.readline()).split()[1])
    await reader.read()
    writer.close()
    return status
