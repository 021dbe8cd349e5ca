"""Keys on one server: each sees, cancels and loses what is its own; an operator's key everything.

The server has two keys, and an operator's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from .server_process import Server, until

LONG = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 4000, "stream": True,
        "ignore_eos": True}  # fmt: skip
CHATS = "/v1/chat/completions"


@pytest.fixture
def server(several_keys: Server) -> Server:
    return several_keys


def ask(server: Server, key: str, method: str, path: str, **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return server.http.request(method, path, headers=headers, **more)


def status(server: Server, key: str) -> dict[str, Any]:
    return dict(ask(server, key, "GET", "/v1/status").raise_for_status().json())


@contextlib.contextmanager
def streaming(server: Server, key: str) -> Iterator[tuple[str, Iterator[str]]]:
    """A reply on its way: its id and what is still to come."""
    headers = {"authorization": f"Bearer {key}"}
    with server.http.stream("POST", CHATS, json=LONG, headers=headers) as reply:
        assert reply.status_code == 200
        lines = reply.iter_lines()
        first = json.loads(next(lines).removeprefix("data: "))
        yield first["id"].removeprefix("chatcmpl-"), lines


def test_others_see_of_a_request_that_there_is_one(server: Server) -> None:
    """Status shows a key its own requests, and of others only how many. B53, B68."""
    with streaming(server, "alice") as (name, _):
        own, others, operator = (status(server, key) for key in ("alice", "bob", "root"))
        assert [request["id"] for request in own["requests"]] == [name]
        assert (own["others"], own["running"]) == (0, 1)
        assert (others["requests"], others["others"], others["running"]) == ([], 1, 1)
        assert name not in json.dumps(others)
        assert [request["id"] for request in operator["requests"]] == [name]
    until(lambda: not status(server, "root")["requests"], "it is over")
    seen = {key: [it["id"] for it in status(server, key)["recent"]] for key in ("bob", "root")}
    assert name not in seen["bob"]
    assert name in seen["root"]


def test_a_foreign_request_cannot_be_cancelled_and_seems_unknown(server: Server) -> None:
    """Another key gets the 404 of an id that never was; the owner's works. B68."""
    with streaming(server, "alice") as (name, lines):
        foreign = ask(server, "bob", "DELETE", f"/v1/requests/{name}")
        unknown = ask(server, "bob", "DELETE", f"/v1/requests/{'0' * 32}")
        assert foreign.status_code == 404
        assert foreign.json() == unknown.json()
        assert '"delta":' in next(line for line in lines if line)  # it goes on
        assert ask(server, "alice", "DELETE", f"/v1/requests/{name}").status_code == 200
    with streaming(server, "alice") as (name, _):
        assert ask(server, "root", "DELETE", f"/v1/requests/chatcmpl-{name}").status_code == 200


def test_only_an_operator_clears_the_cache(server: Server) -> None:
    """Other keys get a 403 that names the flag, and may look at the cache. B68."""
    refused = ask(server, "alice", "DELETE", "/v1/cache")
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "operator_only"
    assert "--operator-key" in refused.json()["error"]["message"]
    assert ask(server, "root", "DELETE", "/v1/cache").status_code == 200
    assert ask(server, "alice", "GET", "/v1/cache").status_code == 200


def test_a_stored_response_is_nobody_elses(server: Server) -> None:
    """Neither to read, nor to go on from, nor by one of its items. B68."""
    made = ask(
        server, "alice", "POST", "/v1/responses", json={"input": "Hi", "max_output_tokens": 4}
    )
    name, item = made.json()["id"], made.json()["output"][0]["id"]
    path = f"/v1/responses/{name}"
    for method in ("GET", "DELETE"):
        found = ask(server, "bob", method, path)
        unknown = ask(server, "bob", method, "/v1/responses/resp_0")
        assert found.status_code == unknown.status_code == 404
        told = [it.json()["error"]["message"].replace(name, "resp_0") for it in (found, unknown)]
        assert told[0] == told[1]
    for body in (
        {"input": "And?", "previous_response_id": name},
        {"input": [{"type": "item_reference", "id": item}]},
    ):
        assert ask(server, "bob", "POST", "/v1/responses", json=body).status_code in (400, 404)
    assert ask(server, "alice", "GET", path).status_code == 200
    assert ask(server, "root", "GET", path).status_code == 200


def test_with_a_cache_per_key_nothing_tells_what_others_asked(server: Server) -> None:
    """Not cached_tokens, and nothing in a request's own record; the same salt is another with
    another key. The same key does get a hit: the control.
    """

    def asked(key: str, **more: Any) -> tuple[int, str]:
        body = {"prompt": "The quick brown fox jumps. " * 20, "max_tokens": 1, **more}
        made = ask(server, key, "POST", "/v1/completions", json=body).raise_for_status().json()
        [record] = [it for it in status(server, key)["recent"] if made["id"].endswith(it["id"])]
        cached = made["usage"]["prompt_tokens_details"]["cached_tokens"]
        return cached, record["why"] or record["hit"]

    first = asked("alice")
    assert asked("bob") == first
    assert first[0] == 0
    assert asked("alice")[0] > 0
    salted = asked("alice", cache_salt="s")
    assert asked("bob", cache_salt="s") == salted
    assert salted[0] == 0


def test_metrics_name_no_key_and_no_request(server: Server) -> None:
    with streaming(server, "alice") as (name, _):
        told = ask(server, "bob", "GET", "/metrics").text
    assert name not in told
    assert not any(key in told for key in ("alice", "bob", "root"))
    assert not any(key in server.log for key in ("alice", "bob", "root"))
