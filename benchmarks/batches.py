"""A batch of requests beside live streams: what the streams feel of it, and how far it gets.

    python -m benchmarks.batches                     1,000 requests beside 8 streams of bushel:tiny
    python -m benchmarks.batches MODEL

In turns A B B A: the streams alone, and beside a batch that has all its requests to go. Of the
streams the largest gap, which `--token-gap` bounds, and the median time of a token, which the batch
may make a quarter longer; of the batch, requests that were answered meanwhile. Exits with 1 if one
of the three is not so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.client import chunks
from benchmarks.server import serving
from bushel.core.options import EngineOptions

URL = "/v1/chat/completions"
ENDED = ("completed", "failed", "cancelled", "expired")
MOST = 1.25  # times the median token time of streams alone


@dataclass
class Turn:
    gaps: list[float] = field(default_factory=list)  # of all tokens of all streams
    first: list[float] = field(default_factory=list)
    answered: int = 0  # requests of the batch


def _body(text: str, tokens: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
    }


async def _stream(port: int, at: int, end: float, turn: Turn) -> None:
    number = 0
    while time.monotonic() < end:
        number += 1
        asked, last = time.monotonic(), 0.0
        # With log-probabilities a token whose text is held back has a chunk, too.
        body = {**_body(f"Tell me about {at} and {number}.", 128), "logprobs": True}
        async for chunk in chunks(port, body):
            if b'"logprobs":{' not in chunk:
                continue
            now = time.monotonic()
            if last:
                turn.gaps.append(now - last)
            else:
                turn.first.append(now - asked)
            last = now


async def _streams(port: int, count: int, seconds: float) -> Turn:
    turn, end = Turn(), time.monotonic() + seconds
    await asyncio.gather(*(_stream(port, at, end, turn) for at in range(count)))
    return turn


class Batch:
    """Begun when it is made."""

    def __init__(self, client: httpx.Client, requests: int):
        lines = [
            {
                "custom_id": str(at),
                "method": "POST",
                "url": URL,
                "body": _body(f"What is {at} + {at}? " * (1 + at % 20), 16 + at % 48),
            }
            for at in range(requests)
        ]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        files = {"file": ("requests.jsonl", data), "purpose": (None, "batch")}
        file = client.post("/v1/files", files=files).raise_for_status().json()
        asked = {"input_file_id": file["id"], "endpoint": URL, "completion_window": "24h"}
        self._client = client
        self._id = client.post("/v1/batches", json=asked).raise_for_status().json()["id"]

    def _state(self) -> Any:
        return self._client.get(f"/v1/batches/{self._id}").raise_for_status().json()

    @property
    def answered(self) -> int:
        return int(self._state()["request_counts"]["completed"])

    def cancel(self) -> None:
        self._client.post(f"/v1/batches/{self._id}/cancel")
        while self._state()["status"] not in ENDED:
            time.sleep(0.05)


def _turn(port: int, client: httpx.Client, asked: argparse.Namespace, *, beside: bool) -> Turn:
    if not beside:
        return asyncio.run(_streams(port, asked.streams, asked.seconds))
    batch = Batch(client, asked.requests)
    while not batch.answered:  # it has the machine for itself
        time.sleep(0.01)
    before = batch.answered
    turn = asyncio.run(_streams(port, asked.streams, asked.seconds))
    turn.answered = batch.answered - before
    batch.cancel()
    return turn


def _measured(port: int, asked: argparse.Namespace) -> tuple[list[Turn], list[Turn]]:
    """Alone and beside a batch."""
    alone, beside = list[Turn](), list[Turn]()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
        _turn(port, client, argparse.Namespace(**{**vars(asked), "seconds": 2}), beside=True)
        for _ in range(asked.rounds):
            for turns in (alone, beside, beside, alone):
                turns.append(_turn(port, client, asked, beside=turns is beside))
    return alone, beside


def _tell(alone: list[Turn], beside: list[Turn], asked: argparse.Namespace) -> bool:
    """Whether all is as it should be."""
    medians = []
    for name, turns in (("alone", alone), ("beside", beside)):
        gaps = [gap for turn in turns for gap in turn.gaps]
        medians.append(statistics.median(gaps))
        first = statistics.median([wait for turn in turns for wait in turn.first])
        span = asked.seconds * len(turns)
        print(
            f"{name:7} token: median {1e3 * medians[-1]:.2f} ms, largest gap {max(gaps):.3f} s; "
            f"first token: median {first:.3f} s; {len(gaps) / span:.0f} tokens/s; "
            f"{sum(turn.answered for turn in turns) / span:.2f} requests/s of the batch"
        )
    ratio = medians[1] / medians[0]
    longest = max(gap for turn in beside for gap in turn.gaps)
    bound = EngineOptions.token_gap
    print(f"median x {ratio:.2f} (at most {MOST}), largest gap {longest:.3f} s (at most {bound})")
    return ratio <= MOST and longest <= bound and all(turn.answered for turn in beside)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", default="bushel:tiny")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--requests", type=int, default=1000, help="of the batch")
    parser.add_argument("--seconds", type=float, default=15, help="of a turn")
    parser.add_argument("--rounds", type=int, default=2, help="of four turns each")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="bushel-") as folder,
        serving(asked.model, "--batch-dir", folder) as server,
    ):
        alone, beside = _measured(server.port, asked)
    return 0 if _tell(alone, beside, asked) else 1


if __name__ == "__main__":
    sys.exit(main())
