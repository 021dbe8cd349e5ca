"""Many streams at once on `bushel:tiny`: nothing lost, nothing repeated, the front at ease.

    python -m benchmarks.streams                     300 streams for 60 seconds

Every client asks again as soon as its reply has ended. Each reply is compared with what the same
request gets alone from `LLM`. Meanwhile /health is asked five times a second, and the front's
memory is looked at. Exits with 1 if a stream failed or differed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from benchmarks.client import Failed, get, stream, text_of
from benchmarks.server import Serving, serving

KINDS = 24  # different requests


def _request(kind: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What to ask, and how to decode it: greedy or seeded, short or longer."""
    text = f"My name is Nora{kind}. Say something about {'tea ' * (1 + kind % 7)}and {kind}."
    messages = {"messages": [{"role": "user", "content": text}]}
    params: dict[str, Any] = {"max_tokens": 16 + 8 * (kind % 5), "ignore_eos": True}
    if kind % 3:
        params |= {"temperature": 0.8, "seed": kind, "top_p": 0.9}
    else:
        params |= {"temperature": 0}
    return messages, params


def solo() -> list[str]:
    from bushel import LLM, SamplingParams

    with LLM("bushel:tiny") as llm:
        return [
            llm.generate(messages, SamplingParams(**params))[0].text
            for messages, params in map(_request, range(KINDS))
        ]


@dataclass
class Seen:
    replies: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    health: list[float] = field(default_factory=list)
    front: list[int] = field(default_factory=list)


async def _client(at: int, port: int, end: float, expected: list[str], seen: Seen) -> None:
    kind = at % KINDS
    while time.monotonic() < end:
        messages, params = _request(kind)
        try:
            text = text_of(await stream(port, {**messages, **params}))
        except (Failed, OSError) as error:
            seen.replies[f"failed: {error}"] += 1
        else:
            seen.replies["equal" if text == expected[kind] else "different"] += 1
            seen.tokens += params["max_tokens"]
        kind = (kind + 1) % KINDS


async def _watch(server: Serving, end: float, seen: Seen) -> None:
    while time.monotonic() < end:
        start = time.monotonic()
        status = await get(server.port, "/health")
        seen.health.append(time.monotonic() - start)
        seen.replies[f"health {status}"] += 1
        seen.front.append(server.front_bytes)
        await asyncio.sleep(0.2)


async def _run(server: Serving, streams: int, seconds: float, expected: list[str]) -> Seen:
    seen, end = Seen(), time.monotonic() + seconds
    clients = (_client(at, server.port, end, expected, seen) for at in range(streams))
    await asyncio.gather(_watch(server, end, seen), *clients)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rows", type=int, default=64)
    options = parser.parse_args()
    expected = solo()
    with serving("bushel:tiny", "--max-num-seqs", str(options.rows)) as server:
        start = time.monotonic()
        seen = asyncio.run(_run(server, options.streams, options.seconds, expected))
        took = time.monotonic() - start
    quantiles = statistics.quantiles(seen.health, n=100)
    third = len(seen.front) // 3
    print(f"{options.streams} streams, {took:.0f} s: {dict(seen.replies)}")
    print(f"{seen.tokens / took:.0f} tokens/s")
    print(
        f"/health: median {quantiles[49] * 1e3:.0f} ms, p99 {quantiles[98] * 1e3:.0f} ms, "
        f"worst {max(seen.health) * 1e3:.0f} ms of {len(seen.health)}"
    )
    print(
        f"front: {seen.front[0] / 1e6:.0f} MB at first, {max(seen.front[:third]) / 1e6:.0f} MB "
        f"at most in the first third, {max(seen.front[-third:]) / 1e6:.0f} MB in the last"
    )
    fine = {"equal", "health 200"}
    return 0 if set(seen.replies) <= fine and seen.replies["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
