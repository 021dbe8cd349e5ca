"""Clients that go away take their work with them (B47), and servers end in good order."""

from __future__ import annotations

import contextlib
import json
import signal
import threading

import httpx
import pytest

from tests.server.leaving_clients import settled, storm
from tests.server.server_process import FEW, PATIENCE, Server, alive, children, serving, until

pytestmark = pytest.mark.long

ASK = {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "temperature": 0}
REST = 10  # readings, 50 ms apart, that are the same
LONG = {**ASK, "max_tokens": 20_000, "ignore_eos": True}


# Constants that MLX makes on the way are a few bytes each, and 16 KB for the oddest settings. The
# state of one short request is far more.
CONSTANTS = 50_000


def memory_of(server: Server) -> tuple[int, int]:
    """Without what is kept for later prompts."""
    server.http.delete("/v1/cache").raise_for_status()
    found = server.status()["engine"]["memory"]
    return found["active_bytes"], found["state_buffers"]


def memory_at_rest(server: Server) -> tuple[int, int]:
    """What was started for someone who is gone is still computed."""
    readings = [memory_of(server)]

    def unchanged() -> bool:
        readings.append(memory_of(server))
        return len(readings) > REST and len(set(readings[-REST:])) == 1

    until(unchanged, "memory at rest")
    return readings[-1]


def test_nothing_is_left_of_clients_that_go_away_at_any_moment(tiny: Server) -> None:
    """`python -m tests.server.leaving_clients 1000` is the long form."""
    storm(tiny, 20, seed=0)
    settled(tiny)
    before = tiny.http.post("/v1/chat/completions", json=ASK).json()["choices"]
    memory, buffers = memory_at_rest(tiny)
    seen = storm(tiny, 100, seed=1)
    assert seen["left"] == 100
    assert seen["refused"] == 0
    assert seen["answered"] > 10  # or nobody got as far as a reply
    settled(tiny)
    after, left = memory_at_rest(tiny)
    assert (abs(after - memory) < CONSTANTS, left) == (True, buffers), (after, memory)
    assert tiny.status()["engine"]["restarts"] == 0
    assert tiny.http.post("/v1/chat/completions", json=ASK).json()["choices"] == before


def test_a_cancelled_request_is_told_and_others_go_on(tiny: Server) -> None:
    with tiny.http.stream("POST", "/v1/chat/completions", json={**LONG, "stream": True}) as it:
        lines = it.iter_lines()
        first = json.loads(next(lines).removeprefix("data: "))
        assert tiny.http.delete(f"/v1/requests/{first['id']}").status_code == 200
        events = [line for line in lines if line]
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "request_cancelled"
    assert tiny.http.delete(f"/v1/requests/{first['id']}").status_code == 404
    assert settled(tiny)["running"] == 0


def test_a_request_that_takes_too_long_ends_and_says_so(tiny: Server) -> None:
    answer = tiny.http.post("/v1/chat/completions", json={**LONG, "timeout": 1.0})
    assert answer.status_code == 408
    assert answer.json()["error"]["code"] == "request_timeout"
    assert settled(tiny)["running"] == 0


class Reader:
    """A stream in a thread of its own, whose connection may be cut."""

    def __init__(self, server: Server, tokens: int):
        self.lines: list[str] = []
        self.begun = threading.Event()
        self._url = f"{server.url}/v1/chat/completions"
        self._sent = {**LONG, "max_tokens": tokens, "stream": True}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.begun.wait(PATIENCE)

    def join(self) -> list[str]:
        self._thread.join(PATIENCE)
        return self.lines

    def _read(self) -> None:
        with (
            contextlib.suppress(httpx.TransportError),
            httpx.stream("POST", self._url, json=self._sent, timeout=PATIENCE) as response,
        ):
            for line in filter(None, response.iter_lines()):
                self.lines.append(line)
                self.begun.set()


def test_sigterm_lets_running_replies_finish_and_a_second_one_ends_them() -> None:
    """New ones are not taken meanwhile. (One that outlasts the drain: `test_recovery`.)"""
    with serving(*FEW, "--drain-seconds", "600") as server:
        short, endless = Reader(server, 200), Reader(server, 20_000)
        kin = children(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.health() == 503, "it says that it is ending")
        refused = server.http.post("/v1/chat/completions", json=ASK)
        counted = server.http.post("/tokenize", json={"prompt": "a"})
        for told in (refused, counted):
            assert (told.status_code, told.json()["error"]["code"]) == (503, "shutting_down")
        assert short.join()[-1] == "data: [DONE]"
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) != 0
        assert "data: [DONE]" not in endless.join()
        until(lambda: not any(map(alive, kin)), "all children ended")
