"""Every route of `/v1` is there without it, too, with the same rules."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from tests.depth import one_in
from tests.peers.conftest import MODEL
from tests.server.server_process import PATIENCE, Server

SUM: list[Any] = [{"role": "user", "content": "What is 3 + 4?"}]
SHORT = {"max_tokens": 4, "temperature": 0}
POSTED: dict[str, dict[str, Any]] = {
    "/chat/completions": {"messages": SUM, **SHORT},
    "/completions": {"prompt": "3 + 4 =", **SHORT},
    "/messages": {"messages": SUM, **SHORT},
    "/messages/count_tokens": {"messages": SUM},
    "/responses": {"input": "What is 3 + 4?", "max_output_tokens": 4, "temperature": 0},
    "/responses/input_tokens": {"input": "What is 3 + 4?"},
    "/embeddings": {"input": "a bushel"},
    "/rerank": {"query": "a bushel", "documents": ["of grain", "of salt"]},
    "/score": {"text_1": "a bushel", "text_2": "of grain"},
}
# What differs between two replies to the same question.
OWN = ("id", "created", "created_at", "completed_at", "usage", "item_id")


def without_own(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_own(inner) for key, inner in value.items() if key not in OWN}
    if isinstance(value, list):
        return [without_own(inner) for inner in value]
    return value


def alike(short: Any, long: Any) -> bool:
    """Numbers within rounding: the second finds a prefix, and sums in another order."""
    if isinstance(short, dict) and isinstance(long, dict):
        return short.keys() == long.keys() and all(alike(short[key], long[key]) for key in short)
    if isinstance(short, list) and isinstance(long, list):
        return len(short) == len(long) and all(map(alike, short, long))
    if isinstance(short, float) and isinstance(long, float):
        return abs(short - long) < 1e-5
    return bool(short == long)


@pytest.mark.parametrize("path", one_in(2, POSTED))
def test_a_route_without_its_version_answers_alike(server: Server, path: str) -> None:
    short = server.http.post(path, json=POSTED[path])
    long = server.http.post(f"/v1{path}", json=POSTED[path])
    assert short.status_code == long.status_code == 200, short.text
    assert alike(without_own(short.json()), without_own(long.json()))


@pytest.mark.parametrize(
    "path", one_in(2, ["/models", f"/models/{MODEL}", "/cache", "/hub/pulls", "/log"])
)
def test_what_is_asked_for_without_a_body_too(server: Server, path: str) -> None:
    short, long = server.http.get(path), server.http.get(f"/v1{path}")
    assert short.status_code == long.status_code == 200
    assert short.json().keys() == long.json().keys()


@pytest.mark.parametrize("path", POSTED)
def test_errors_are_told_alike(server: Server, path: str) -> None:
    bad = {**POSTED[path], "model": "nobody"}
    short, long = server.http.post(path, json=bad), server.http.post(f"/v1{path}", json=bad)
    assert short.status_code == long.status_code == 404
    assert without_own(short.json()["error"]) == without_own(long.json()["error"])
    assert short.headers.keys() == long.headers.keys()


@pytest.mark.long
def test_the_sdks_need_no_version(server: Server) -> None:
    with openai.OpenAI(base_url=server.url, api_key="any", timeout=PATIENCE) as client:
        made = client.chat.completions.create(model=MODEL, messages=SUM, stream=True)
        assert list(made)[-1].choices[0].finish_reason == "stop"
        assert [card.id for card in client.models.list()] == [MODEL]
    with anthropic.Anthropic(base_url=server.url, api_key="any", timeout=PATIENCE) as other:
        message = other.messages.create(model=MODEL, messages=SUM, max_tokens=4)
        assert message.stop_reason in ("max_tokens", "end_turn")


def test_the_document_has_each_route_once(server: Server) -> None:
    paths = server.http.get("/openapi.json").json()["paths"]
    assert "/v1/chat/completions" in paths
    assert "/chat/completions" not in paths


@pytest.mark.parametrize("path", ["/nowhere", "/v1/nowhere", "/v1/v1/models", "/v1/health"])
def test_control_nothing_else_is_there(server: Server, path: str) -> None:
    assert server.http.get(path).status_code == 404


def test_requests_are_counted_by_their_api(server: Server) -> None:
    def count() -> float:
        lines = server.http.get("/metrics").text.splitlines()
        named = [line for line in lines if line.startswith("bushel:requests_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in named if 'api="chat"' in line)

    before = count()
    server.http.post("/chat/completions", json=POSTED["/chat/completions"])
    assert count() == before + 1
