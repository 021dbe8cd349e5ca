"""A device that fails takes the engine with it, and leaves no wrong answer behind (B65)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import bushel
from tests.server.server_process import FEW, Server, serving, until

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
# The moments count what an engine does by itself when it loads.
FAULTS = {"chunk": 8, "step": 30, "join": 2, "kept": 4, "write": 2}
SHORT, LONG = "Tell me of apples.", "A bushel of apples, and a bushel of pears. " * 12


@contextmanager
def failing(folder: Path) -> Iterator[Server]:
    path = os.pathsep.join([str(HERE / "failing_device"), str(Path(bushel.__file__).parents[1])])
    faults = ":".join([str(folder), *(f"{place}={moment}" for place, moment in FAULTS.items())])
    environment = {**os.environ, "PYTHONPATH": path, "BUSHEL_TEST_DEVICE_FAULTS": faults}
    flags = ("--cache-dir", str(folder / "cache"), "--prefill-chunk", "32")
    with serving(*FEW, *flags, env=environment) as server:
        yield server


def body(text: str, tokens: int) -> dict[str, Any]:
    more = {"temperature": 0, "logprobs": 1, "ignore_eos": True}
    return {"prompt": text, "max_tokens": tokens, **more}


ASKED = [body(SHORT, 60), body(LONG, 12)]


def ask(server: Server, sent: dict[str, Any]) -> tuple[int, Any]:
    """The status, and what was said; or the error's code."""
    reply = server.http.post("/v1/completions", json=sent)
    if reply.status_code != 200:
        return reply.status_code, reply.json()["error"]["code"]
    choice = reply.json()["choices"][0]
    return 200, (choice["text"], choice["logprobs"]["token_logprobs"])


def same(answer: tuple[int, Any], right: tuple[int, Any]) -> bool:
    (status, said), (_, expected) = answer, right
    return status == 200 and said == (expected[0], pytest.approx(expected[1], abs=1e-4))


def ask_all(server: Server) -> list[tuple[int, Any]]:
    """Both at once."""
    with ThreadPoolExecutor(len(ASKED)) as threads:
        return list(threads.map(partial(ask, server), ASKED))


def test_nobody_is_answered_wrongly_then_or_later_or_by_another_server(
    tiny: Server, tmp_path: Path
) -> None:
    """Whatever was being computed: a chunk, a step, a join, what is kept or written. B65.

    The log tells of the engine that takes over. B69.
    """
    right = [ask(tiny, sent) for sent in ASKED]
    with failing(tmp_path) as server:
        for _ in range(3 * len(FAULTS)):  # one engine may fail while it serves what another had
            until(lambda: server.health() == 200, "an engine is ready")
            if restarts(server) == len(FAULTS):
                break
            server.http.delete("/v1/cache")
            for answer, expected in zip(ask_all(server), right, strict=True):
                # A reply that had begun cannot go on elsewhere.
                assert same(answer, expected) or answer == (503, "engine_restarted"), answer
        server.logged("Another engine takes over")
        for _ in range(2):
            assert all(map(same, ask_all(server), right))
        assert restarts(server) == len(FAULTS)
        assert server.stop() == 0
    with failing(tmp_path) as server:
        assert all(map(same, ask_all(server), right))
        assert restarts(server) == 0
        assert server.status()["recent"][0]["hit"] == "disk"


def restarts(server: Server) -> int:
    return int(server.status()["engine"]["restarts"])
