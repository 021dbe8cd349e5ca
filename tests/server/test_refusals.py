"""Whoever is turned away has a line in the log that says so; a flood of them has few."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from bushel.server.errors import ApiError
from bushel.server.observability.refusals import Refusals

from .hostile_requests import CHAT, KEY, Raw, Sent, ask, chat, post, post_bytes
from .server_process import Server, until

OPEN = {"authorization": f"Bearer {KEY}"}
JSON = {"content-type": "application/json", **OPEN}
MESSAGES, RESPONSES, COMPLETIONS = "/v1/messages", "/v1/responses", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def good(path: str = CHAT, **fields: object) -> Sent:
    return post(path, {"messages": HELLO, "max_tokens": 2, **fields}, **OPEN)


def header(name: str, value: str) -> Sent:
    return Sent("POST", CHAT, b"{}", {**JSON, name: value})


REFUSED: list[tuple[str, Sent | Raw]] = [
    ("401 invalid_api_key", chat()),
    ("401 invalid_api_key", Sent("GET", "/v1/models")),
    ("401 invalid_api_key", post(CHAT, {}, authorization="Bearer wrong")),
    ("401 invalid_api_key", post(MESSAGES, {}, **{"x-api-key": "wrong"})),
    ("403 host_not_allowed", header("host", "evil.example")),
    ("403 origin_not_allowed", header("origin", "https://evil.example")),
    ("403 origin_not_allowed", header("sec-fetch-site", "cross-site")),
    ("404 not_found", Sent("GET", "/v2/models", headers=OPEN)),
    ("404 not_found", Sent("POST", "/v1/audio/speech", b"{}", JSON)),
    ("404 model_not_found", good(model="nobody")),
    ("404 model_not_found", good(MESSAGES, model="nobody")),
    ("404 model_not_found", Sent("GET", "/v1/models/nobody", headers=OPEN)),
    ("405 method_not_allowed", Sent("DELETE", CHAT, headers=OPEN)),
    ("413 body_too_large", post_bytes(CHAT, b" " * 1_100_000, **OPEN)),
    (
        "415 unsupported_media_type",
        Sent("POST", CHAT, b"a=1", {**OPEN, "content-type": "text/css"}),
    ),
    ("400 invalid_json", post_bytes(CHAT, b"{", **OPEN)),
    ("400 invalid_json", post_bytes(MESSAGES, b"[1,", **OPEN)),
    ("400 invalid_value", post(CHAT, {}, **OPEN)),
    ("400 invalid_value", post(COMPLETIONS, {}, **OPEN)),
    ("400 invalid_value", post(RESPONSES, {}, **OPEN)),
    ("400 invalid_value", good(temperature=-1)),
    ("400 invalid_value", good(temperature="hot")),
    ("400 invalid_value", good(max_tokens=-5)),
    ("400 invalid_value", good(n=1000)),
    ("400 invalid_value", good(top_p=7)),
    ("400 invalid_value", good(stop=[""] * 100)),
    (
        "400 invalid_grammar",
        good(response_format={"type": "json_schema", "json_schema": {"schema": {"type": 5}}}),
    ),
    ("400 invalid_value", good(tools=[{"type": "function"}])),
    ("400 invalid_value", post(CHAT, {"messages": [{"role": "king", "content": "x"}]}, **OPEN)),
    (
        "400 context_length_exceeded",
        post(CHAT, {"messages": [{"role": "user", "content": "x " * 400_000}]}, **OPEN),
    ),
    ("400 malformed_http", Raw(b"HELO there\r\n\r\n")),
]


@pytest.fixture
def server(short: Server) -> Server:
    return short


def lines(server: Server, words: str) -> list[str]:
    return [line for line in server.log.splitlines() if words in line]


def told(server: Server) -> list[str]:
    """Refused before it had a record, or after."""
    return [line for line in server.log.splitlines() if " refused " in line or ", error " in line]


def newest(server: Server, before: int) -> str | None:
    """What was told since then."""
    return next(iter(told(server)[before:]), None)


def test_every_refused_request_has_its_line(server: Server) -> None:
    """With status and code, one alone, and nothing that is secret. B69."""
    kinds: Counter[str] = Counter()
    for answer, sent in REFUSED:
        before = len(told(server))
        assert str(ask(server, sent).status) == answer[:3], sent
        if kinds[answer] < 10:  # of more that are alike the number is told
            line = until(partial(newest, server, before), f"{sent} is logged")
            assert f" {answer}" in line
            kinds[answer] += 1
            assert len(told(server)) == before + 1
    assert KEY not in server.log.replace(f"--api-key {KEY}", "")
    assert len(REFUSED) >= 30


def test_a_flood_of_refusals_does_not_flood_the_log(server: Server) -> None:
    """A few lines stand for all of them. B69."""
    before = len(server.log.splitlines())
    for _ in range(300):
        assert server.http.get("/v1/models").status_code == 401
    until(lambda: lines(server, "refused 401 invalid_api_key: "), "some are told")
    assert len(server.log.splitlines()) - before <= 25


Call = tuple[float, Callable[[], None]]


@pytest.fixture
def refusals(caplog: pytest.LogCaptureFixture) -> tuple[Refusals, list[Call]]:
    caplog.set_level("INFO", "bushel.refused")
    later: list[Call] = []
    return Refusals(lambda *call: later.append(call), lambda: 0.0), later


def test_those_beyond_the_first_are_counted(
    refusals: tuple[Refusals, list[Call]], caplog: pytest.LogCaptureFixture
) -> None:
    """Of many alike their number is told. B69."""
    them, later = refusals
    for _ in range(250):
        them.tell(ApiError(401, "No.", code="invalid_api_key"), "GET /v1/models", "10.0.0.7")
    them.tell(ApiError(404, "Nothing.", code="not_found"), "GET /x", None)
    assert len(caplog.messages) == 11
    assert len(later) == 2
    for _, call in later:
        call()
    assert caplog.messages[-1] == "refused 401 invalid_api_key: 240 more requests in 10 s"
    them.tell(ApiError(401, "No.", code="invalid_api_key"), "GET /v1/models", "10.0.0.7")
    assert caplog.messages[-1].endswith("GET /v1/models from 10.0.0.7: No.")


def test_what_a_client_wrote_stays_in_its_line(
    refusals: tuple[Refusals, list[Call]], caplog: pytest.LogCaptureFixture
) -> None:
    error = ApiError(400, "bad\nvalue" + "x" * 1000)
    refusals[0].tell(error, "GET /a\r\nINFO forged" + "y" * 1000, "::1")
    (message,) = caplog.messages
    assert not re.search(r"[\r\n]", message)
    assert len(message) < 600


def test_one_that_was_told_is_not_told_again(
    refusals: tuple[Refusals, list[Call]], caplog: pytest.LogCaptureFixture
) -> None:
    error = ApiError(400, "No.")
    for _ in range(2):
        refusals[0].tell(error, "GET /", None)
    assert len(caplog.messages) == 1
