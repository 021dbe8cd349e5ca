"""What the front process adds to each token: its own processor time, at 32 streams.

    python -m benchmarks.front
    python -m benchmarks.front --api text chat --streams 100
    python -m benchmarks.front --against ../older    # another source tree, in turns with this one

The engine runs the scripted model of `tests/clients`, so that every stream says the same in every
API: text, then a tool call with long arguments. It pauses before each step, so that every token
is an event of its own: a front that cannot follow sends several in one, which costs less. Figures
are processor time of the front, requests included, over tokens delivered: medians over rounds,
quartiles beside them. 100 us is the promise, for plain text.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
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


def _ask(port: int, api: str) -> socket.socket:
    path, body = _BODIES[api]
    payload = json.dumps({**body, **_REST}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(head.encode() + payload)
    return connection


def _together(port: int, api: str, streams: int) -> int:
    """Read so many replies to their ends; returns their events.

    Plain sockets in one loop: what the client takes of the processors, the front does not get.
    """
    replies: dict[socket.socket, list[bytes]] = {_ask(port, api): [] for _ in range(streams)}
    with selectors.DefaultSelector() as selector:
        for connection in replies:
            selector.register(connection, selectors.EVENT_READ, connection)
        while selector.get_map():
            for key, _ in selector.select():
                if data := key.data.recv(1 << 16):
                    replies[key.data].append(data)
                else:
                    selector.unregister(key.data)
                    key.data.close()
    return sum(_events(api, b"".join(pieces)) for pieces in replies.values())


def _events(api: str, reply: bytes) -> int:
    expected = b"write_file" if "tools" in _BODIES[api][1] else b"[DONE]"
    if b" 200 " not in reply[:20] or expected not in reply:
        raise Failed(reply[:500].decode(errors="replace"))
    return reply.count(b"\ndata: ")


def _round(server: Serving, api: str, streams: int) -> tuple[float, float, float]:
    """Microseconds of the front per token, tokens per stream, and events per token."""
    spent, made = _processor_seconds(server.process.pid), _tokens(server.port)
    events = _together(server.port, api, streams)
    spent, made = _processor_seconds(server.process.pid) - spent, _tokens(server.port) - made
    return 1e6 * spent / made, made / streams, events / made


def _compare(servers: Sequence[Serving], api: str, streams: int, rounds: int) -> None:
    """Rounds of all servers in turns, there and back, so that a busy machine is busy for all."""
    for server in servers:
        _together(server.port, api, streams)  # warm
    figures: list[list[tuple[float, float, float]]] = [[] for _ in servers]
    for number in range(rounds):
        order = range(len(servers))
        for at in order if number % 2 == 0 else reversed(order):
            figures[at].append(_round(servers[at], api, streams))
    for at, found in enumerate(figures):
        cost = [each for each, *_ in found]
        low, middle, high = statistics.quantiles(cost, n=4, method="inclusive")
        print(
            f"{api:9} {'against' if at else 'this':7} {streams} streams of {found[0][1]:.0f} "
            f"tokens: {middle:.0f} us per token ({low:.0f} … {high:.0f}), "
            f"{found[-1][2]:.2f} events per token",
            flush=True,
        )
    if len(servers) == 2:
        ratios = [mine[0] / other[0] for mine, other in zip(*figures, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        print(f"{api:9} ratio   {middle:.2f} ({low:.2f} … {high:.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--api", nargs="+", default=list(_BODIES), choices=_BODIES)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--words", type=int, default=60, help="of text, and of arguments")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds before each step")
    parser.add_argument("--rounds", type=int, default=4, help="at least 2")
    parser.add_argument("--against", type=Path, help="another source tree")
    options = parser.parse_args()
    trees = [None] if options.against is None else [None, options.against]
    with tempfile.TemporaryDirectory(prefix="bushel-") as folder, ExitStack() as stack:
        model = write(Path(folder) / "scripted", _scripts(options.words), pause=options.pause)
        flags = ("--trust-remote-code", "--max-num-seqs", str(options.streams))
        servers = [stack.enter_context(serving(model, *flags, tree=tree)) for tree in trees]
        for api in options.api:
            _compare(servers, api, options.streams, options.rounds)


if __name__ == "__main__":
    main()
