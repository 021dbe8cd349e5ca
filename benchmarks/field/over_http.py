"""A load over HTTP: streamed chat replies, each with the times at which its text came."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.client import Failed, chunks
from benchmarks.field.records import Reply, Run

Ids = Callable[[str], list[int]]  # the tokens of a reply's text


@dataclass(frozen=True)
class Ask:
    at: float  # seconds after the start
    messages: list[dict[str, Any]]
    new: int
    prompt: int | None = None  # tokens that the server has to count, where that is known

    def body(self, model: str) -> dict[str, Any]:
        return {
            "model": model,
            "messages": self.messages,
            "max_tokens": self.new,
            "temperature": 0,
            "stream_options": {"include_usage": True},
        }


@dataclass
class _Stream:
    due: float
    chunks: list[tuple[float, bytes]]
    error: str = ""


async def _one(port: int, body: dict[str, Any], start: float, stream: _Stream) -> None:
    try:
        async for chunk in chunks(port, body):
            stream.chunks.append((time.perf_counter() - start, chunk))
    except (Failed, OSError, EOFError, ValueError) as error:
        stream.error = f"{type(error).__name__}: {error}"


async def _open_loop(port: int, asks: Sequence[Ask], model: str, start: float) -> list[_Stream]:
    async def due(ask: Ask, stream: _Stream) -> None:
        await asyncio.sleep(max(0.0, ask.at - (time.perf_counter() - start)))
        await _one(port, ask.body(model), start, stream)

    streams = [_Stream(ask.at, []) for ask in asks]
    await asyncio.gather(*(due(*pair) for pair in zip(asks, streams, strict=True)))
    return streams


async def _closed_loop(
    port: int, asks: Sequence[Ask], model: str, start: float, clients: int
) -> list[_Stream]:
    streams = [_Stream(0.0, []) for _ in asks]
    waiting = iter(zip(asks, streams, strict=True))

    async def client() -> None:
        for ask, stream in waiting:
            stream.due = time.perf_counter() - start
            await _one(port, ask.body(model), start, stream)

    await asyncio.gather(*(client() for _ in range(clients)))
    return streams


def send(
    port: int, model: str, asks: Sequence[Ask], ids: Ids, clients: int | None, patience: float
) -> Run:
    """clients: so many, each of which asks again when it has its reply; None: all when due."""
    gc.collect()
    gc.freeze()  # a pause of this process would be taken for one of the server
    start = time.perf_counter()

    async def all_of_them() -> list[_Stream]:
        if clients is None:
            loop = _open_loop(port, asks, model, start)
        else:
            loop = _closed_loop(port, asks, model, start, clients)
        return await asyncio.wait_for(loop, patience)

    try:
        streams = asyncio.run(all_of_them())
    except TimeoutError:
        streams = [_Stream(0.0, [], f"not done in {patience:g} s") for _ in asks]
    took = time.perf_counter() - start
    return Run([_reply(*pair, ids) for pair in zip(asks, streams, strict=True)], took)


def _reply(ask: Ask, stream: _Stream, ids: Ids) -> Reply:
    reply = Reply(stream.due, error=stream.error)
    for time_, chunk in stream.chunks:
        message = json.loads(chunk)
        usage = message.get("usage") or {}
        counted = usage.get("prompt_tokens", ask.prompt)
        reply.counted = usage.get("completion_tokens", reply.counted)
        if ask.prompt is not None and counted != ask.prompt:
            reply.error = f"counts {counted} tokens of {ask.prompt} in the prompt"
        for choice in message.get("choices", ()):
            if content := choice["delta"].get("content"):
                reply.text += content
                reply.times.append(time_)
    if not reply.error and reply.text:
        reply.tokens = ids(reply.text)
    return reply
