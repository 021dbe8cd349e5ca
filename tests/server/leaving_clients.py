"""Clients that go away at random moments.

`python -m tests.server.leaving_clients 1000` for many of them.
"""

from __future__ import annotations

import asyncio
import base64
import io
import random
import sys
import time
from collections import Counter
from typing import Any

import httpx
from PIL import Image

from tests.server.server_process import PATIENCE, Server, serving

AT_ONCE = 48
LONG = "Tell me about " + "apples and pears, " * 120


def picture(colour: str) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (96, 96), colour).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def any_request(chance: random.Random) -> dict[str, Any]:
    """Short or long, with or without an image, streamed or not, one choice or three."""
    text = chance.choice(["Hello!", "What is 3 + 4?", LONG])
    content: Any = text
    if chance.random() < 0.3:
        url = picture(chance.choice(["red", "blue", "green"]))
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
    return {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 2000,
        "ignore_eos": True,
        "stream": chance.random() < 0.5,
        "n": chance.choice([1, 1, 3]),
    }


async def leave(client: httpx.AsyncClient, chance: random.Random, seen: Counter[str]) -> None:
    """Send a request and go away after a while, whatever it is doing then.

    Some of those who stream wait for the reply to begin, or on a busy machine nobody would see one.
    """
    request = any_request(chance)
    moment = chance.choice([0.02, 0.2, 1.0, 3.0, 6.0]) * chance.random()
    patient = request["stream"] and chance.random() < 0.5
    begun = asyncio.Event()

    async def read() -> None:
        async with client.stream("POST", "/v1/chat/completions", json=request) as response:
            seen["answered" if response.status_code == 200 else "refused"] += 1
            begun.set()
            async for _ in response.aiter_bytes():
                pass
        seen["whole"] += 1

    with_end = asyncio.create_task(read())
    if patient:
        await asyncio.wait_for(begun.wait(), PATIENCE)
    await asyncio.wait([with_end], timeout=moment)
    with_end.cancel()
    await asyncio.gather(with_end, return_exceptions=True)
    seen["left"] += 1


async def _storm(url: str, count: int, seed: int) -> Counter[str]:
    chance, seen = random.Random(seed), Counter[str]()
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as client:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(seed: int) -> None:
            async with gate:
                await leave(client, random.Random(seed), seen)

        await asyncio.gather(*(one(chance.getrandbits(32)) for _ in range(count)))
    return seen


def storm(server: Server, count: int, seed: int) -> Counter[str]:
    """Returns how it went for them."""
    return asyncio.run(_storm(server.url, count, seed))


def settled(server: Server) -> dict[str, Any]:
    """The server's status when nothing is running any more."""
    while (status := server.status())["requests"] or status["running"] or status["waiting"]:
        time.sleep(0.05)
    return status


def bare(server: Server) -> dict[str, Any]:
    """The server's status without what it keeps for later prompts."""
    time.sleep(1.0)
    server.http.delete("/v1/cache").raise_for_status()
    return server.status()


def main(count: int) -> None:
    with serving("--log-level", "error") as server:
        storm(server, 50, seed=0)  # what is made once is made
        settled(server)
        before = bare(server)
        start = time.monotonic()
        seen = storm(server, count, seed=1)
        took = time.monotonic() - start
        start = time.monotonic()
        settled(server)
        print(f"{count} clients in {took:.1f} s: {dict(seen)}")
        print(f"nothing running or waiting after {time.monotonic() - start:.2f} s")
        after = bare(server)
        for name in ("active_bytes", "state_bytes", "state_buffers"):
            print(
                f"{name}: {before['engine']['memory'][name]} -> {after['engine']['memory'][name]}"
            )
        print(f"restarts: {after['engine']['restarts']}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
