"""What the front process adds to each token: its own processor time, at 100 streams.

    python -m benchmarks.front
    python -m benchmarks.front --api chat messages --streams 100

The engine runs the scripted model of `tests/clients`, so that every stream says the same in every
API: text, then a tool call with long arguments. It pauses before each step, so that every token
is an event of its own: a front that cannot follow sends several in one, which costs less. Figures
are processor time of the front, requests included, over tokens delivered; medians over rounds,
lowest and highest beside them. Less than 1 ms is the promise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.client import Failed
from benchmarks.server import Serving, serving
from tests.clients.scripted_model import Script, call, write

_WORDS = "the quick brown fox jumps over the lazy dog and runs away again "
_ASK = "Tell me something and write it down."
_SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
}
_ABOUT = {"name": "write_file", "description": "Write a file"}
_SAID = [{"role": "user", "content": _ASK}]
_REST = {"model": "scripted", "stream": True}
_BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("/v1/chat/completions", {"messages": _SAID}),
    "chat": (
        "/v1/chat/completions",
        {
            "messages": _SAID,
            "tools": [{"type": "function", "function": {**_ABOUT, "parameters": _SCHEMA}}],
        },
    ),
    "messages": (
        "/v1/messages",
        {"messages": _SAID, "max_tokens": 4096, "tools": [{**_ABOUT, "input_schema": _SCHEMA}]},
    ),
    "responses": (
        "/v1/responses",
        {"input": _ASK, "tools": [{"type": "function", **_ABOUT, "parameters": _SCHEMA}]},
    ),
}


def _scripts(words: int) -> list[Script]:
    text = _WORDS * (words // len(_WORDS.split()))
    written = call("write_file", {"path": "a.txt", "content": text})
    return [Script(text * 2), Script(f"{text}\n{written}", when="<tool_call>")]


def _processor_seconds(pid: int) -> float:
    """Of one process, all its threads, without its children."""
    if (stat := Path(f"/proc/{pid}/stat")).exists():
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    # macOS: minutes:seconds.hundredths
    told = subprocess.run(
        ["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    minutes, _, seconds = told.stdout.strip().rpartition(":")
    return 60 * float(minutes) + float(seconds)


def _tokens(port: int) -> float:
    """That the server has made since its start."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
        found = re.search(rb"vllm:generation_tokens_total{[^}]*} (\S+)", reply.read())
    return float(found[1]) if found else 0.0


async def _drain(port: int, path: str, body: dict[str, Any], expected: bytes) -> int:
    """Read a whole streamed reply; returns its events."""
    payload = json.dumps({**body, **_REST}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n".encode())
    writer.write(payload)
    reply = await reader.read(-1)
    writer.close()
    if b" 200 " not in reply[:20] or expected not in reply:
        raise Failed(reply[:500].decode(errors="replace"))
    return reply.count(b"\ndata: ")


async def _together(port: int, api: str, streams: int) -> int:
    path, body = _BODIES[api]
    expected = b"write_file" if "tools" in body else b"[DONE]"
    return sum(await asyncio.gather(*(_drain(port, path, body, expected) for _ in range(streams))))


def _round(server: Serving, api: str, streams: int) -> tuple[float, float, float]:
    """Microseconds of the front per token, tokens per stream, and events per token."""
    spent, made = _processor_seconds(server.process.pid), _tokens(server.port)
    events = asyncio.run(_together(server.port, api, streams))
    spent, made = _processor_seconds(server.process.pid) - spent, _tokens(server.port) - made
    return 1e6 * spent / made, made / streams, events / made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--api", nargs="+", default=list(_BODIES), choices=_BODIES)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--words", type=int, default=60, help="of text, and of arguments")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each step")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bushel-") as folder:
        model = write(Path(folder) / "scripted", _scripts(options.words), pause=options.pause)
        flags = ("--trust-remote-code", "--max-num-seqs", str(options.streams))
        with serving(model, *flags) as server:
            for api in options.api:
                asyncio.run(_together(server.port, api, options.streams))  # warm
                rounds = [_round(server, api, options.streams) for _ in range(options.rounds)]
                cost = [each for each, *_ in rounds]
                print(
                    f"{api:9} {options.streams} streams of {rounds[0][1]:.0f} tokens: "
                    f"{statistics.median(cost):.0f} us per token "
                    f"({min(cost):.0f} … {max(cost):.0f}), {rounds[-1][2]:.2f} events per token",
                    flush=True,
                )


if __name__ == "__main__":
    main()
