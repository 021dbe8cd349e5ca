"""A request that the server asks itself, as a client would, and for which nobody waits."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Scope

from bushel.server.callers import OWNER_HEADER, background_state


class OwnAnswer(NamedTuple):
    status: int
    request_id: str
    body: bytes


async def ask_self(app: ASGIApp, path: str, body: bytes, owner: str) -> OwnAnswer:
    """owner: whose it is (`callers.owner_of`). Cancelling ends it as a client that leaves does."""
    asked = False
    status, request_id, pieces = 500, "", list[bytes]()

    async def receive() -> Message:
        nonlocal asked
        if asked:
            await asyncio.get_running_loop().create_future()  # this client stays
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, request_id
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = dict(message.get("headers", ()))
            request_id = headers.get(b"x-request-id", b"").decode("latin-1")
        else:
            pieces.append(message.get("body", b""))

    await app(_scope(path, body, owner), receive, send)
    return OwnAnswer(status, request_id, b"".join(pieces))


def _scope(path: str, body: bytes, owner: str) -> Scope:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if owner:
        headers.append((OWNER_HEADER.encode(), owner.encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": None,
        "server": None,
        "state": background_state(),
    }
