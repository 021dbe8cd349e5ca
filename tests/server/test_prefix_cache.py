"""What users see of prefix reuse: in replies, status, logs, metrics and at /v1/cache (B32, B53)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.depth import often, one_in
from tests.server.server_process import FEW, Server, serving, until
from tests.server.test_metrics import samples

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*FEW, "--log-json", "--cache-memory", "6MB") as server:
        yield server


def fresh(length: int = 12) -> str:
    """A text that nothing else begins like."""
    return f"{next(_numbers)} apples, " + "pears and plums, " * length


def body(path: str, text: str, **more: Any) -> dict[str, Any]:
    asked = {"prompt": text} if path == TEXT else {"messages": [{"role": "user", "content": text}]}
    return {**asked, "max_tokens": 4, "temperature": 0, **more}


def used(reply: httpx.Response) -> dict[str, Any]:
    """The usage of a reply, streamed or not."""
    assert reply.status_code == 200, reply.text
    if reply.headers["content-type"].startswith("text/event-stream"):
        usage = [line for line in reply.text.splitlines() if '"usage":{' in line]
        return dict(json.loads(usage[-1].removeprefix("data: "))["usage"])
    return dict(reply.json()["usage"])


def ask(server: Server, path: str, text: str, **more: Any) -> tuple[int, int]:
    """Tokens of the prompt, and how many of them were reused."""
    usage = used(server.http.post(path, json=body(path, text, **more)))
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def last(server: Server) -> dict[str, Any]:
    """The request that ended last, as the status shows it."""
    return dict(server.status()["recent"][0])


def logged(server: Server) -> dict[str, Any]:
    """The same, as the log has it."""
    id = f'"id": "{last(server)["id"]}"'

    def ended() -> str | None:
        lines = (line for line in server.log.splitlines() if id in line)
        return next((line for line in lines if '"logger": "bushel.request"' in line), None)

    return dict(json.loads(until(ended, "its line")))


def metrics(server: Server) -> dict[str, float]:
    return samples(server.http.get("/metrics").text)


STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    "more", one_in(2, [{}, STREAM, {"n": 3, "temperature": 1}]), ids=["", "stream", "n"]
)
@pytest.mark.parametrize("path", often([CHAT, TEXT], CHAT))
def test_an_identical_prompt_computes_one_token_and_everything_says_so(
    server: Server, path: str, more: dict[str, Any]
) -> None:
    text = fresh()
    length, cached = ask(server, path, text, **more)
    assert cached < 24  # what every prompt of a template begins with
    assert ask(server, path, text, **more) == (length, length - 1)
    for seen in (last(server), logged(server)):
        assert (seen["cached_tokens"], seen["hit"], seen["why"]) == (length - 1, "exact", "")
        assert seen["prompt_tokens"] == length


def test_prompts_of_one_request_are_added_up(server: Server) -> None:
    texts = [fresh(), fresh()]
    both = {"max_tokens": 1, "prompt": texts}
    server.http.post(TEXT, json=both).raise_for_status()
    usage = used(server.http.post(TEXT, json=both))
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 2


def test_clearing_makes_the_next_one_a_miss(server: Server) -> None:
    text = fresh()
    length, _ = ask(server, TEXT, text)
    assert ask(server, TEXT, text) == (length, length - 1)
    full = server.http.get("/v1/cache").json()
    assert full["on"]
    assert full["tokens"] >= length
    assert full["bytes"] > 0
    empty = server.http.delete("/v1/cache").json()
    assert (empty["tokens"], empty["bytes"], empty["snapshots"]) == (0, 0, 0)
    assert empty["since_start"] == full["since_start"]  # counters only grow
    assert ask(server, TEXT, text) == (length, 0)
    for seen in (last(server), logged(server)):
        assert seen["hit"] == ""
        assert seen["why"] == "nothing that is kept begins like this prompt"


def test_metrics_follow(server: Server) -> None:
    server.http.delete("/v1/cache").raise_for_status()
    before, text = metrics(server), fresh()
    length, _ = ask(server, TEXT, text)
    for _ in range(2):
        ask(server, TEXT, text)
    server.status()  # what the engine says of itself is as new as that
    after = metrics(server)

    def added(name: str) -> float:
        return after[name] - before[name]

    assert added("vllm:prefix_cache_queries_total") == 3 * length
    assert added("vllm:prefix_cache_hits_total") == 2 * (length - 1)
    assert added("bushel:prefix_cache_hit_requests_total{kind=exact}") == 2
    assert added("bushel:prefix_cache_missed_requests_total{reason=unknown}") == 1
    assert added("bushel:prefix_cache_missed_requests_total{reason=other}") == 0
    assert before["bushel:prefix_cache_bytes{kind=kv}"] == 0
    assert after["bushel:prefix_cache_bytes{kind=kv}"] > 0
    assert after["bushel:prefix_cache_tokens"] >= length
    counts = server.http.get("/v1/cache").json()["since_start"]
    assert counts["reused_tokens"] == after["vllm:prefix_cache_hits_total"]
    assert counts["hits"]["exact"] == after["bushel:prefix_cache_hit_requests_total{kind=exact}"]


def test_salts_do_not_share(server: Server) -> None:
    text = fresh()
    length, _ = ask(server, TEXT, text)
    assert ask(server, TEXT, text, cache_salt="a") == (length, 0)
    assert ask(server, TEXT, text, cache_salt="b") == (length, 0)
    assert ask(server, TEXT, text, cache_salt="a") == (length, length - 1)
    assert ask(server, TEXT, text) == (length, length - 1)


def test_log_probabilities_of_a_prompt_are_computed_and_that_is_told(server: Server) -> None:
    text = fresh()
    for _ in range(2):
        assert ask(server, TEXT, text, echo=True, logprobs=1)[1] == 0
    assert last(server)["why"].startswith("log-probabilities")


def test_a_running_request_shows_what_it_reused(server: Server) -> None:
    text = fresh()
    length, _ = ask(server, CHAT, text)
    sent = body(CHAT, text, stream=True, max_tokens=20_000, ignore_eos=True)
    with server.http.stream("POST", CHAT, json=sent) as reply:
        lines = (line for line in reply.iter_lines() if line)
        list(itertools.islice(lines, 3))  # it decodes
        [row] = server.status()["requests"]
        reply.close()
    assert (row["cached_tokens"], row["hit"], row["phase"]) == (length - 1, "exact", "decode")
    until(lambda: not server.status()["requests"], "it is gone")
    assert (last(server)["status"], last(server)["hit"]) == (499, "exact")


@pytest.mark.long
def test_recent_requests_are_few(server: Server) -> None:
    for _ in range(40):
        server.http.post(TEXT, json={"prompt": "Hello", "max_tokens": 1}).raise_for_status()
    recent = server.status()["recent"]
    assert len(recent) == 32
    assert {it["phase"] for it in recent} == {"done"}


@pytest.mark.long
def test_switched_off_nothing_is_reused_and_everything_says_so() -> None:
    text = fresh()
    with serving(*FEW, "--no-prefix-cache") as server:
        for _ in range(2):
            assert ask(server, CHAT, text)[1] == 0
        assert last(server)["why"] == "prefix reuse is off"
        off = {"on": False, "why": "it is switched off"}
        assert server.status()["engine"]["cache"] == off
        for method in ("GET", "DELETE"):
            said = server.http.request(method, "/v1/cache").raise_for_status().json()
            assert {key: said[key] for key in off} == off
        found = metrics(server)
        assert found["bushel:prefix_cache_missed_requests_total{reason=off}"] == 2
        assert found["vllm:prefix_cache_queries_total"] == 0
        server.logged("Cache: off, because it is switched off")


def test_the_budget_that_was_given_is_the_one_that_holds(server: Server) -> None:
    server.logged("Cache: up to 6.0 MB")
    for _ in range(12):
        ask(server, TEXT, fresh())
    found = server.http.get("/v1/cache").json()
    assert found["limit_bytes"] == 6_000_000
    assert 0 < found["bytes"] <= 6_000_000
    assert found["since_start"]["evicted"] == found["evicted"] > 0
