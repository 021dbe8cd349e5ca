"""Chat streams beside embeddings over HTTP: what the streams feel, in turns with and without.

    python -m benchmarks.chat_beside_embeddings          embeddings by the chat model itself
    python -m benchmarks.chat_beside_embeddings MODEL    by an encoder in an engine of its own

Four streams of a 20M-parameter model, and a client that asks for 64 embeddings again and again. Of
every reply its largest gap; the promise is `--token-gap`, half a second unless told.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from benchmarks.client import chunks, post
from benchmarks.networks import write
from benchmarks.rounds import rounds
from benchmarks.server import serving

CHAT = "chat"  # what the server calls the model that streams
STREAMS = 4
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "in", "tea", "fields")


@dataclass
class Phase:
    """What was seen in some seconds of load."""

    gaps: list[float] = field(default_factory=list)  # the largest of each reply
    tokens: int = 0
    texts: int = 0


def _texts(seed: int, count: int, longest: int) -> list[str]:
    chance = np.random.default_rng(seed)
    lengths = chance.integers(4, longest + 1, count)
    return [" ".join(chance.choice(WORDS, length)) for length in lengths]


async def _chat(port: int, at: int, end: float, seen: Phase) -> None:
    number = 0
    while time.monotonic() < end:
        number += 1
        [question] = _texts(1000 * at + number, 1, 64)
        body: dict[str, Any] = {
            "model": CHAT,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": 96,
            "temperature": 0,
            "logprobs": True,  # so that a token whose text is held back has a chunk, too
        }
        last, largest = 0.0, 0.0
        async for chunk in chunks(port, body):
            if b'"logprobs":{' not in chunk:
                continue  # no token
            now = time.monotonic()
            largest = max(largest, now - last if last else 0.0)
            last, seen.tokens = now, seen.tokens + 1
        seen.gaps.append(largest)


async def _embed(port: int, model: str, longest: int, end: float, seen: Phase) -> None:
    seed = 0
    while time.monotonic() < end:
        seed += 1
        texts = _texts(seed, 64, longest)
        answer = await post(port, "/v1/embeddings", {"model": model, "input": texts})
        seen.texts += len(answer["data"])


async def _phase(port: int, model: str | None, longest: int, seconds: float) -> Phase:
    seen, end = Phase(), time.monotonic() + seconds
    work = [_chat(port, at, end, seen) for at in range(STREAMS)]
    if model is not None:
        work.append(_embed(port, model, longest, end, seen))
    await asyncio.gather(*work)
    return seen


def _measured(port: int, embeds: str, asked: argparse.Namespace) -> dict[str, list[Phase]]:
    def turn(model: str | None) -> Callable[[int], Phase]:
        return lambda _: asyncio.run(_phase(port, model, asked.longest, asked.seconds))

    return rounds({"alone": turn(None), "beside": turn(embeds)}, asked.rounds)


def _tell(made: dict[str, list[Phase]], embeds: str, asked: argparse.Namespace) -> None:
    print(f"{STREAMS} streams, {asked.rounds} turns of {asked.seconds:g} s, texts by {embeds}")
    for name, phases in made.items():
        gaps = [gap for phase in phases for gap in phase.gaps]
        middle, late = np.percentile(gaps, [50, 95])
        span = asked.seconds * len(phases)
        print(
            f"{name:7} {sum(phase.tokens for phase in phases) / span:7.0f} tok/s, "
            f"{sum(phase.texts for phase in phases) / span:6.0f} texts/s; largest gap of a reply: "
            f"median {middle:.3f} s, p95 {late:.3f}, most {max(gaps):.3f} of {len(gaps)} replies"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", help="an encoder; else the chat model embeds, too")
    parser.add_argument("--longest", type=int, default=64, help="words of a text")
    parser.add_argument("--seconds", type=float, default=10, help="of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    embeds = "texts" if asked.model else CHAT
    more = [f"texts={asked.model}"] if asked.model else []

    with tempfile.TemporaryDirectory(prefix="bushel-") as folder:
        write("20m", mx.float32, Path(folder))
        with serving(f"{CHAT}={folder}", *more) as server:
            made = _measured(server.port, embeds, asked)
    _tell(made, embeds, asked)


if __name__ == "__main__":
    main()
