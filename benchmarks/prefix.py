"""Time to first token over HTTP on `bushel:tiny`, of what was sent before and of what was not.

    python -m benchmarks.prefix --plot docs/prefix-reuse.png
    python -m benchmarks.prefix --turns 5 --system 400 --shared 0          a quick look

An agent's session: 20 turns that grow from 5.5k to 8k tokens, each with all messages before it. The
replies are the server's own. Then questions that share a system prompt of 30k tokens.

Cold is the same request under a `cache_salt` of its own, so that it finds nothing; it is sent
right before or right after the other, in turns, so that both see the same machine. Like any
request it is kept for later, which is part of its time. It is slow, so it is measured on every
third turn. Figures are medians over sessions, lowest and highest beside them. The promises:
7 times at 8k tokens, 4.4 times for the shared prompt, 96 % reused from the second turn on.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.client import Failed, chunks
from benchmarks.plot import draw
from benchmarks.server import serving
from benchmarks.session import following, question, system


@dataclass(frozen=True)
class Answer:
    text: str
    first: float  # seconds to the first token
    prompt: int  # tokens
    cached: int  # of them, not computed
    reply: int  # tokens

    @property
    def share(self) -> float:
        return self.cached / self.prompt


async def _ask(port: int, messages: Sequence[Any], salt: str, tokens: int) -> Answer:
    body = {
        "messages": list(messages),
        "cache_salt": salt,
        "max_tokens": tokens,
        "temperature": 0,
        "stream_options": {"include_usage": True},
    }
    text, first, usage = "", 0.0, None
    start = time.perf_counter()
    async for chunk in chunks(port, body):
        found = json.loads(chunk)
        usage = found.get("usage") or usage
        for choice in found["choices"]:
            said = choice["delta"].get("content") or ""
            text += said
            # A reply may end with its first token.
            if not first and (said or choice["finish_reason"]):
                first = time.perf_counter() - start
    if not first or usage is None:
        raise Failed("a reply without tokens or usage")
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Answer(text, first, usage["prompt_tokens"], cached, usage["completion_tokens"])


def ask(port: int, messages: Sequence[Any], salt: str, tokens: int = 1) -> Answer:
    return asyncio.run(_ask(port, messages, salt, tokens))


@dataclass
class Row:
    """One turn, or one kind of question, as all sessions saw it."""

    reused: list[Answer] = field(default_factory=list)
    cold: list[Answer] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Of medians."""
        times = [[it.first for it in side] for side in (self.cold, self.reused)]
        return statistics.median(times[0]) / statistics.median(times[1])

    def __str__(self) -> str:
        one = self.reused[0]
        shares = f"{one.prompt:8} {one.cached:8} {one.share:7.1%}"
        ratio = f"{self.ratio:7.1f}" if self.cold else ""
        return f"{shares}  {_spread(self.cold):>24}  {_spread(self.reused):>24}  {ratio}"


HEAD = "prompt   cached  reused   cold, s (low … high)     reused, s (low … high)       ratio"


def _spread(answers: Sequence[Answer]) -> str:
    if not answers:
        return "-"
    times = [it.first for it in answers]
    return f"{statistics.median(times):.3f} ({min(times):.3f} … {max(times):.3f})"


def pair(port: int, row: Row, messages: Sequence[Any], salt: str, tokens: int, order: int) -> str:
    """Ask both ways; returns the reply of the one that may reuse."""
    for side in ("reused", "cold") if order % 2 else ("cold", "reused"):
        if side == "reused":
            row.reused.append(ask(port, messages, salt, tokens))
        else:
            row.cold.append(ask(port, messages, f"{salt} {len(messages)}"))
            assert row.cold[-1].cached == 0, "a cold prompt found something"
    return row.reused[-1].text


def session(port: int, at: int, rows: Sequence[Row], options: argparse.Namespace) -> None:
    messages, salt = [system(options.system)], f"session {at}"
    for turn, row in enumerate(rows, 1):
        messages.append(following(turn, options.step))
        # The last one too, since that is the longest.
        if turn == 1 or ((turn - 2) % options.cold_every and turn != len(rows)):
            row.reused.append(ask(port, messages, salt, options.reply))
            said = row.reused[-1].text
        else:
            said = pair(port, row, messages, salt, options.reply, at + turn // options.cold_every)
        messages.append({"role": "assistant", "content": said})


def shared(port: int, options: argparse.Namespace) -> Row:
    """The first question finds nothing, so it is cold; the last one is asked cold as well."""
    row, lead = Row(), system(options.shared)
    row.cold.append(ask(port, [lead, question("first")], "shared"))
    for at in range(options.questions):
        row.reused.append(ask(port, [lead, question(at)], "shared"))
    row.cold.append(ask(port, [lead, question("last")], "alone"))
    return row


def rewritten(rows: Sequence[Row]) -> list[str]:
    """Turns that could not go on from the reply before them, with that reply.

    A template may write a reply anew, as when thoughts in it are left out of the history.
    """
    found = []
    for turn, (last, row) in enumerate(itertools.pairwise(rows), 2):
        for before, after in zip(last.reused, row.reused, strict=True):
            # The last token of a reply may not have been run.
            if after.cached < before.prompt + before.reply - 1:
                found.append(f"turn {turn} does not go on from the reply {before.text!r}")
    return found


def plot(target: Path, rows: Sequence[Row]) -> None:
    def line(side: str) -> list[tuple[float, float, float, float]]:
        found = (
            (turn, [it.first for it in getattr(row, side)]) for turn, row in enumerate(rows, 1)
        )
        return [(turn, statistics.median(it), min(it), max(it)) for turn, it in found if it]

    low, high = rows[0].reused[0].prompt, rows[-1].reused[0].prompt
    draw(
        target,
        "seconds to the first token, bushel:tiny over HTTP",
        f"turn of an agent's session, from {low} to {high} tokens",
        {"cold": line("cold"), "reused": line("reused")},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--system", type=int, default=5500, help="tokens of the system prompt")
    parser.add_argument("--step", type=int, default=110, help="tokens of a tool's result")
    parser.add_argument("--reply", type=int, default=48, help="most tokens of a reply")
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--cold-every", type=int, default=3, help="turns")
    parser.add_argument("--shared", type=int, default=30000, help="tokens; 0: not at all")
    parser.add_argument("--questions", type=int, default=4, help="that share them")
    parser.add_argument("--plot", type=Path, help="a PNG to draw the session to")
    options = parser.parse_args()
    rows = [Row() for _ in range(options.turns)]
    with serving("bushel:tiny") as server:
        ask(server.port, [question("warm")], "warm")
        for at in range(options.sessions):
            session(server.port, at, rows, options)
        print(f"turn  {HEAD}")
        for turn, row in enumerate(rows, 1):
            print(f"{turn:4}  {row}", flush=True)
        print("".join(f"{it}\n" for it in rewritten(rows)), end="")
        if options.plot is not None:
            plot(options.plot, rows)
        if options.shared:
            print(f"      {HEAD}\nshared {shared(server.port, options)}")
    least = min(it.share for row in rows[1:] for it in row.reused)
    ratios = [row.ratio for row in rows if row.cold]
    print(f"from turn 2 on: at least {least:.1%} reused, at least {min(ratios):.1f} times as fast")


if __name__ == "__main__":
    main()
