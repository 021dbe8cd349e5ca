"""A server that is killed while it writes its prefixes to disk serves again, and hits them (B46).

BUSHEL_TEST_KILLS sets how often; once in a normal run.
"""

import os
import random
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from .server_process import FEW, Server, alive, children, until

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("BUSHEL_TEST_KILLS", "1"))


def body(at: int) -> dict[str, object]:
    said = f"Remember the number {at} and the words apple, plough and river. " * 6
    return {
        "messages": [
            {"role": "system", "content": "You are a farmer's helper. " * 12},
            {"role": "user", "content": said},
        ],
        "max_tokens": 8,
        "temperature": 0,
    }


def ask(server: Server, at: int) -> tuple[str, int]:
    reply = server.http.post("/v1/chat/completions", json=body(at)).raise_for_status().json()
    text = reply["choices"][0]["message"]["content"]
    return text, reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def killed(server: Server) -> None:
    pids = [server.process.pid, *children(server.process.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    server.process.wait()
    until(lambda: not any(alive(pid) for pid in pids), "all its processes are gone")


def keep_asking(server: Server, first: int) -> None:
    try:
        for at in range(first, first + 1000):
            ask(server, at)
    except httpx.TransportError:
        pass  # it was killed


def test_a_server_killed_at_any_moment_serves_again(tmp_path: Path) -> None:
    rng = random.Random(5)
    replies: dict[int, str] = {}
    hits = []
    for turn in range(KILLS):
        server = Server(*FEW, "--cache-dir", str(tmp_path)).wait()
        try:
            text, cached = ask(server, 0)
            hits.append(cached)
            assert replies.setdefault(0, text) == text
            if turn == 0:
                time.sleep(1.0)  # for the first to be written
            asking = threading.Thread(target=keep_asking, args=(server, 1 + 1000 * turn))
            asking.start()
            time.sleep(rng.uniform(0.1, 1.5))
            killed(server)
            asking.join()
        finally:
            server.close()
    with_server = Server(*FEW, "--cache-dir", str(tmp_path)).wait()
    try:
        text, cached = ask(with_server, 0)
        assert text == replies[0]
        assert with_server.http.get("/health").status_code == 200
    finally:
        with_server.close()
    assert hits[0] == 0
    assert all(it > 0 for it in (*hits[1:], cached))
