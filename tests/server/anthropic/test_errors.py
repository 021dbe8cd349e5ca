"""Errors as Anthropic's clients read them, and what they recognise them by."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bushel.core import ContextLengthError
from bushel.server.api import unread_fields
from bushel.server.errors import ApiError
from bushel.server.options import Limits
from tests.server.anthropic.messages_client import HELLO, TOOL, post
from tests.server.scripted_service import (
    PATIENCE,
    Service,
    ask,
    options,
    playing,
    request_bytes,
    run,
    said,
    served,
)


def detail(reply: Any) -> dict[str, Any]:
    body = reply.json()
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert body["request_id"] == reply.headers["request-id"]
    return dict(body["error"])


def refusing(error: Exception) -> Service:
    return Service(lambda job: error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (408, "timeout_error"),
        (409, "conflict_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_every_error_has_the_type_of_its_status(status: int, kind: str, stream: bool) -> None:
    error = ApiError(status, "Too bad.", code="x", retry_after=3)
    reply = post(refusing(error), stream=stream)
    assert reply.status_code == status
    assert detail(reply) == {"type": kind, "message": "Too bad."}
    assert reply.headers["retry-after"] == "3"


@pytest.mark.parametrize("at_least", [True, False])
def test_a_prompt_that_is_too_long_is_told_in_the_words_clients_look_for(at_least: bool) -> None:
    """Says "prompt is too long", with both numbers, as Anthropic's API says it. B50."""
    error = ApiError.of(ContextLengthError(5000, 4096, at_least=at_least))
    reply = post(refusing(error))
    assert reply.status_code == 400
    assert detail(reply) == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 5000 tokens > 4095 maximum",
    }


@pytest.mark.parametrize(
    "thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}, 0, "x"]
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_threads_are_refused_so_that_clients_go_on_without(thread: Any, path: str) -> None:
    service = Service()
    reply = post(service, path, thread=thread)
    assert reply.status_code == 400
    assert detail(reply)["details"] == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }
    assert service.jobs == service.asked == []
    assert post(Service(), path, thread=None).status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", -1),
        ("max_tokens", "7"),
        ("temperature", 3),
        ("stop_sequences", [""]),
        ("stream", "yes"),
        ("thinking", {"type": "enabled", "budget_tokens": 0}),
        ("thinking", {"type": "always"}),
        ("output_config", {"format": {"type": "json_schema"}}),
        ("mcp_servers", [{"type": "url", "url": "https://example.org"}]),
        ("container", "container_1"),
        ("messages", None),
        ("messages", {}),
        ("tools", 3),
        ("system", 3),
    ],
)
def test_a_wrong_field_is_a_400_that_names_it(field: str, value: Any) -> None:
    """An invalid_request_error, with the field in its message. B48."""
    reply = post(Service(), **{field: value})
    assert reply.status_code == 400
    assert detail(reply)["type"] == "invalid_request_error"
    assert field in detail(reply)["message"]


def test_what_is_wrong_before_any_route_has_the_same_shape() -> None:
    def body(**more: Any) -> Any:
        return ask(Service(options=options(limits=Limits(body_bytes=200))), **more)

    path = "/v1/messages"
    for reply, status, kind in (
        (body(method="GET", path=path), 405, "invalid_request_error"),
        (body(method="GET", path=f"{path}/batches"), 404, "not_found_error"),
        (body(method="POST", path=path, content=b"{", headers={}), 400, "invalid_request_error"),
        (body(method="POST", path=path, content=b" " * 201), 413, "request_too_large"),
        (
            body(method="POST", path=path, content=b"{}", headers={"content-type": "text/plain"}),
            415,
            "invalid_request_error",
        ),
        (body(method="POST", path=path, headers={"host": "evil"}), 403, "permission_error"),
    ):
        assert reply.status_code == status
        assert detail(reply)["type"] == kind
    # Control: others keep their own.
    assert "type" not in ask(Service(), "GET", "/v1/chat/completions").json()


def test_a_header_that_is_too_large_is_refused_in_the_same_shape() -> None:
    async def work() -> bytes:
        service = Service(options=options(limits=Limits(header_bytes=300)))
        async with served(service) as port, asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes("/v1/messages", HELLO, **{"anthropic-beta": "x" * 400}))
            told = await reader.read()
            writer.close()
            return told

    told = run(work())
    assert told.startswith(b"HTTP/1.1 431")
    assert b'{"type":"error","error":{"type":"invalid_request_error"' in told


def test_an_unexpected_error_shows_nothing_but_its_id() -> None:
    reply = post(Service(playing(ZeroDivisionError("secret"))))
    assert reply.status_code == 500
    assert detail(reply)["type"] == "api_error"
    assert "secret" not in reply.text


# -- keys and models ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer sesame", "anthropic-version": "2026-10-21"},
        {"x-api-key": "sesame", "anthropic-version": "2023-06-01"},
        {"x-api-key": "sesame", "anthropic-version": "tomorrow", "anthropic-beta": "a-b-2030,x"},
        {"x-api-key": "sesame"},
    ],
)
def test_both_kinds_of_keys_open_with_any_version_and_beta(headers: dict[str, str]) -> None:
    service = Service(options=options(api_keys=("sesame",)))
    assert post(service, headers=headers, path="/v1/messages?beta=true").status_code == 200
    wrong = {name: value.replace("sesame", "simsala") for name, value in headers.items()}
    reply = post(service, headers=wrong)
    assert reply.status_code == 401
    assert detail(reply)["type"] == "authentication_error"


@pytest.mark.parametrize("path", ["/", "/api/hello"])
def test_probes_are_answered_without_a_key(path: str) -> None:
    service = Service(options=options(api_keys=("sesame",)))
    assert ask(service, "HEAD", path).status_code == 200
    assert ask(service, "HEAD", path).content == b""
    assert ask(service, "GET", path).status_code == 401  # control
    assert ask(Service(), "GET", path).status_code == 200


def test_models_are_listed_as_both_kinds_of_clients_expect() -> None:
    listed = ask(Service(), "GET", "/v1/models?limit=1000").json()
    assert (listed["object"], listed["has_more"]) == ("list", False)
    assert listed["first_id"] == listed["last_id"] == "test/model"
    [model] = listed["data"]
    assert (model["object"], model["type"]) == ("model", "model")
    assert model["display_name"] == model["id"] == "test/model"
    assert model["created_at"].endswith("Z")
    one = ask(Service(), "GET", "/v1/models/test/model").json()
    assert one.keys() == model.keys()
    assert one["id"] == "test/model"
    version = {"anthropic-version": "2023-06-01"}
    missing = ask(Service(), "GET", "/v1/models/other", headers=version)
    assert detail(missing)["type"] == "not_found_error"
    assert "type" not in ask(Service(), "GET", "/v1/models/other").json()  # as OpenAI's


def test_any_name_of_a_family_may_be_taken_for_the_model() -> None:
    service = Service(options=options(aliases=(("claude-*", "test/model"),)))
    assert post(service, model="claude-sonnet-4-5").json()["model"] == "test/model"
    reply = post(service, model="gpt-5")
    assert reply.status_code == 404
    assert detail(reply)["type"] == "not_found_error"


# -- what is obeyed, and what is let pass --------------------------------------------------------


def test_what_is_asked_for_reaches_the_engine() -> None:
    service = Service()
    body = {
        "max_tokens": 128_000,
        "temperature": 1,
        "top_p": 0.9,
        "top_k": 40,
        "stop_sequences": ["END", "\n\nHuman:"],
        "tools": [TOOL],
        "stream": True,
        "cache_salt": "mine",
    }
    assert post(service, **body).status_code == 200  # B50: clamped by the engine, not refused
    [job] = service.jobs
    params = job.params
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (
        *(128_000, 1.0, 0.9, 40),
    )
    assert params.stop == ("END", "\n\nHuman:")
    assert (job.api, job.stream, job.reads, job.salt) == ("messages", True, True, "mine")
    assert job.request["tools"]


def test_hints_and_unknown_keys_are_let_pass(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_fields, "_logged", set())
    body = {
        "metadata": {"user_id": '{"device_id":"x"}'},
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "safeguards": [{"type": "dangerous_tool_use"}],
        "service_tier": "auto",
        "betas": ["x-2031"],
        "tea_temperature": "hot",
    }
    assert post(Service(), **body).status_code == 200
    for name in ("tea_temperature", "safeguards", "service_tier"):
        assert f"Ignored the request field {name!r}" in caplog.text


def test_counting_prepares_the_same_prompt_and_generates_nothing() -> None:
    service = Service()
    body = {"system": "Be brief.", "tools": [TOOL], "thinking": {"type": "disabled"}}
    reply = post(service, "/v1/messages/count_tokens?beta=true", **body)
    assert reply.json() == {"input_tokens": len("messages")}
    assert service.jobs == []
    post(service, **body)
    assert service.asked == [service.jobs[0].request]


def test_a_message_may_say_no_limit() -> None:
    """Anthropic's own server insists; a default is of more use."""
    service = Service(playing([said("Hi", finish="stop")]))
    body = {"messages": HELLO["messages"]}
    assert ask(service, "POST", "/v1/messages", json=body).status_code == 200
    assert service.jobs[0].params.max_tokens is None
