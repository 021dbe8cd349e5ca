"""Nobody takes the whole machine: two keys share one server, and so do two requests (B67)."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.depth import often
from tests.server.compare_with_llm import Reference, named
from tests.server.server_process import FEW, PATIENCE, Server, serving, until

START_WAIT = 3.0  # seconds; long enough that a busy machine's delays do not matter beside it
ROWS = 4
GREEDY, MODEST = {"authorization": "Bearer greedy"}, {"authorization": "Bearer modest"}
PROMPT = "Once upon a time"
LONG: dict[str, Any] = {
    "prompt": PROMPT, "n": 128, "max_tokens": 8192, "temperature": 1.0, "seed": 7,
    "ignore_eos": True, "logprobs": 0, "stream": True,
}  # fmt: skip
SHORT = {"prompt": "The end", "max_tokens": 4, "stream": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(
        *FEW,
        *("--api-key", "greedy", "--api-key", "modest"),
        *("--max-num-seqs", str(ROWS), "--start-wait", str(START_WAIT)),
        *("--default-max-tokens", "9000"),
    ) as server:
        server.http.headers.update(MODEST)
        yield server


class Listener:
    """Someone who streams a reply for as long as the `with` block lasts."""

    def __init__(self, url: str, body: dict[str, Any], headers: dict[str, str]):
        self.tokens: dict[int, list[str]] = defaultdict(list)
        self.heard: dict[int, float] = {}  # when each reply last said something
        self._leaving = False
        self._thread = threading.Thread(target=self._listen, args=(url, body, headers))

    def _listen(self, url: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        route = f"{url}/v1/completions"
        with httpx.stream("POST", route, json=body, headers=headers, timeout=PATIENCE) as reply:
            for line in reply.iter_lines():
                if self._leaving:
                    return
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        self.tokens[choice["index"]] += choice["logprobs"]["tokens"]
                        self.heard[choice["index"]] = time.monotonic()

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving = True
        self._thread.join(PATIENCE)


def first_token(server: Server, headers: dict[str, str]) -> float:
    """Seconds until a short request has its first token."""
    start = time.monotonic()
    with server.http.stream("POST", "/v1/completions", json=SHORT, headers=headers) as reply:
        for line in reply.iter_lines():  # comments, too, which come while nothing is said
            waited = time.monotonic() - start
            if line.startswith("data: {") or waited > 2 * START_WAIT:
                return waited
    raise AssertionError("a stream without a token")


def preempted(server: Server) -> int:
    return int(server.status()["engine"]["preemptions"])


@pytest.mark.long
@pytest.mark.parametrize("headers", [MODEST, GREEDY], ids=["another key", "the same key"])
def test_a_request_for_128_long_replies_does_not_keep_another_one_waiting(
    server: Server, reference: Reference, headers: dict[str, str]
) -> None:
    """Its first token waits at most two start_waits, and the long replies do not change. B67."""
    before = preempted(server)
    with Listener(server.url, LONG, GREEDY) as long:
        until(lambda: len(long.heard) == ROWS, "as many replies run as there are rows")
        waited = first_token(server, headers)
        assert waited <= 2 * START_WAIT
        after = time.monotonic()
        until(
            lambda: all(long.heard[row] > after for row in range(ROWS)),
            "the reply that made way goes on",
        )
    assert preempted(server) > before
    most = max(map(len, long.tokens.values()))
    alone = reference.text(**{**LONG, "n": ROWS, "max_tokens": most})
    for row in range(ROWS):
        said = [named(token) for token in long.tokens[row]]
        assert said == alone.choices[row].tokens[: len(said)]


@pytest.mark.long
def test_preempted_replies_are_counted_in_metrics(server: Server) -> None:
    def counted() -> bool:
        lines = server.http.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith("vllm:num_preemptions_total")]
        return float(found[0].split()[-1]) == preempted(server) > 0

    until(counted, "/metrics and /v1/status agree")


@pytest.mark.parametrize(
    ("body", "words"),
    often(
        [
            (
                {"prompt": ["a"] * 256, "n": 128},
                ("256 prompts", "n = 128", "32768 replies", "4096"),
            ),
            (
                {"prompt": ["a"] * 64, "n": 64, "max_tokens": 512},
                ("4096 replies of 512", "1048576"),
            ),
        ],
        ({"prompt": ["a"] * 64, "n": 64, "max_tokens": 512}, ("4096 replies of 512", "1048576")),
    ),
)
def test_more_than_one_request_may_order_is_refused_with_the_numbers(
    server: Server, body: dict[str, Any], words: tuple[str, ...]
) -> None:
    """A 400 names `n`, what was asked for and what may be. B67."""
    reply = server.http.post("/v1/completions", json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == "n"
    assert all(word in error["message"] for word in words), error["message"]


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
        ("/v1/completions", {"prompt": "hello"}),
    ],
)
def test_a_length_that_nobody_names_counts_like_one_that_is_named(
    server: Server, route: str, body: dict[str, Any]
) -> None:
    """128 replies of the default length are refused, 128 short ones served. B67."""
    refused = server.http.post(route, json={**body, "n": 128})
    assert refused.status_code == 400
    assert "128 replies of 9000 tokens (the default" in refused.json()["error"]["message"]
    assert server.http.post(route, json={**body, "n": 128, "max_tokens": 1}).status_code == 200
