"""Clients who mean harm, from the table of threats, and those who abuse connections.

A hostile request gets the answer that the table states, or a 503 while something is being
replaced. Of raw bytes nothing is expected but that nobody else notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tests.server.hostile_requests import KEY, Raw, Sent, head, leaks
from tests.server.threat_table import ROWS, Case
from tests.siege.exchange import PATIENCE, Broken, Exchange
from tests.siege.tally import Tally

# A fault may be what a request meets instead of its answer.
_MEANWHILE = {"503", "429"}


def cases(listener: int, folder: str) -> list[Case]:
    """All that the table has, but for rows that need a server of their own."""
    return [case for row in ROWS.values() for case in row(listener, folder)]


class Attacker:
    def __init__(self, port: int, known: list[Case], tally: Tally):
        self._port = port
        self._known = known
        self._tally = tally
        self.attacks: list[Callable[[random.Random], Coroutine[Any, Any, None]]] = [
            *([self.from_the_table] * 8),
            self.one_byte_chunks,
            self.endless_trailers,
            self.half_requests,
            self.slow_body,
        ]

    async def from_the_table(self, chance: random.Random) -> None:
        name, request, expected = chance.choice(self._known)
        if isinstance(request, Raw):
            await self._raw(request.data, 2.0)
            self._tally.hostile["raw"] += 1
            return
        try:
            got = await asyncio.wait_for(self._short(request), PATIENCE)
        except (Broken, OSError, TimeoutError) as error:
            self._tally.bad(f"hostile {name}: {error!r}")
            return
        self._tally.hostile[got] += 1
        if got != expected and got.split()[0] not in _MEANWHILE:
            self._tally.bad(f"hostile {name}: {got}, not {expected}")

    async def _short(self, request: Sent) -> str:
        """The answer as the table writes it."""
        headers = {"authorization": f"Bearer {KEY}", **request.headers}
        async with Exchange(
            self._port, request.method, request.path, request.content, headers
        ) as body:
            payload = await body.whole()
        if body.status < 400:
            return str(body.status)
        if found := leaks(payload.decode("utf-8", "replace")):
            self._tally.bad(f"an answer tells {found}: {payload[:200]!r}")
        try:
            return f"{body.status} {json.loads(payload)['error'].get('code')}"
        except (ValueError, KeyError, TypeError, AttributeError):
            return f"{body.status} untyped"

    async def one_byte_chunks(self, chance: random.Random) -> None:
        begin = head("Transfer-Encoding: chunked") + b"\r\n"
        await self._raw(begin + b"1\r\n \r\n" * 200_000, 5.0)
        self._tally.hostile["one-byte chunks"] += 1

    async def endless_trailers(self, chance: random.Random) -> None:
        begin = head("Transfer-Encoding: chunked") + b"\r\n2\r\n{}\r\n0\r\n"
        await self._raw(begin + b"X-Trailer: a\r\n" * 100_000, 5.0)
        self._tally.hostile["endless trailers"] += 1

    async def half_requests(self, chance: random.Random) -> None:
        """Beginnings of requests that are held for a while."""
        begun = (head()[:40], head("Content-Length: 1000") + b'\r\n{"messages":', b"GET /")
        held = [self._raw(chance.choice(begun), 1 + 9 * chance.random()) for _ in range(12)]
        await asyncio.gather(*held)
        self._tally.hostile["half requests"] += len(held)

    async def slow_body(self, chance: random.Random) -> None:
        begin = head("Content-Length: 900000") + b"\r\n" + b" " * 700_000
        await asyncio.gather(*(self._raw(begin, 4.0) for _ in range(6)))
        self._tally.hostile["unfinished bodies"] += 6

    async def _raw(self, data: bytes, seconds: float) -> None:
        """Sent, and held for so long at most."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    writer.write(data)
                    while await reader.read(1 << 16):
                        pass
                finally:
                    writer.transport.abort()


async def attack(attacker: Attacker, seed: int, ended: asyncio.Event) -> None:
    chance = random.Random(seed)
    while not ended.is_set():
        await chance.choice(attacker.attacks)(chance)
        await asyncio.sleep(chance.random())
