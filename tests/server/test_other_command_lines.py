"""Servers that are started as vLLM's, llama.cpp's and mlx-lm's users start theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.llm.request_builders import image, text
from tests.server.compare_with_llm import user
from tests.server.server_process import FEW, Server, serving

CHAT = "/v1/chat/completions"
ROOM = 400  # tokens
VLLM = (
    *("--model", "bushel:tiny", "--max-model-len", str(ROOM), "--seed", "7"),
    *("--generation-config", "vllm", "--limit-mm-per-prompt", '{"image": 1}'),
    *("--root-path", "/llm", "--allowed-origins", '["http://a.example"]'),
    *("--default-chat-template-kwargs", '{"enable_thinking": true}'),
)
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<{{ mood }}>"


@pytest.fixture(scope="module")
def vllm() -> Iterator[Server]:
    with serving(*FEW, *VLLM, model=()) as server:
        yield server


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("template") / "own.jinja"
    file.write_text(TEMPLATE)
    line = ("-m", "bushel:tiny", "--temp", "3", "-c", "0", "-ngl", "99", "--jinja")
    kwargs = ("--chat-template-kwargs", '{"mood": "calm"}')
    with serving(*FEW, *line, "--chat-template", str(file), *kwargs, model=()) as server:
        yield server


def asked(server: Server, said: str = "What is 3 + 4?", **fields: Any) -> dict[str, Any]:
    body = {"messages": user(said), "max_tokens": 24, **fields}
    return dict(server.http.post(CHAT, json=body).raise_for_status().json())


def message(server: Server, **fields: Any) -> dict[str, Any]:
    return dict(asked(server, **fields)["choices"][0]["message"])


# -- vLLM --------------------------------------------------------------------------------------


def test_the_model_is_named_by_its_flag(vllm: Server) -> None:
    [model] = vllm.http.get("/v1/models").json()["data"]
    assert model["id"] == "bushel:tiny"


def test_a_prompt_longer_than_the_context_that_was_set_is_refused(vllm: Server) -> None:
    [model] = vllm.http.get("/v1/models").json()["data"]
    assert model["max_model_len"] == ROOM
    body = {"prompt": "a b c d " * ROOM, "max_tokens": 1}
    reply = vllm.http.post("/v1/completions", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert str(ROOM) in reply.json()["error"]["message"]


def test_a_reply_ends_at_the_context_that_was_set(vllm: Server) -> None:
    body = {"prompt": "Once upon a time " * 20, "max_tokens": 5000, "ignore_eos": True}
    reply = vllm.http.post("/v1/completions", json=body).raise_for_status().json()
    assert reply["usage"]["total_tokens"] == ROOM
    assert reply["choices"][0]["finish_reason"] == "length"


def test_a_request_without_a_seed_has_the_servers(vllm: Server) -> None:
    """The same request gets the same reply; one that names a seed has its own."""
    hot = {"temperature": 3, "ignore_eos": True}
    first, again, named = (message(vllm, **hot, **more) for more in ({}, {}, {"seed": 7}))
    assert first == again == named
    assert message(vllm, **hot, seed=8) != first


def test_without_a_generation_config_replies_are_drawn(vllm: Server) -> None:
    """vLLM's own temperature is 1, where Bushel takes the likeliest token."""

    def said(**fields: Any) -> set[str]:
        body = {"prompt": "Zebras", "max_tokens": 30, "ignore_eos": True, **fields}
        replies = [vllm.http.post("/v1/completions", json={**body, "seed": n}) for n in range(4)]
        return {reply.json()["choices"][0]["text"] for reply in replies}

    assert len(said()) > 1
    assert len(said(temperature=0)) == 1  # control


def test_one_picture_too_many_is_refused_by_name(vllm: Server) -> None:
    picture = image(Image.new("RGB", (32, 32), "red"))
    one = {"messages": user(picture, text("What is it?")), "max_tokens": 2}
    assert vllm.http.post(CHAT, json=one).status_code == 200
    two = {"messages": user(picture, picture, text("What is it?")), "max_tokens": 2}
    reply = vllm.http.post(CHAT, json=two)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_media")
    assert "1 images" in reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/metrics"])
def test_the_server_is_below_its_path_too(path: str, vllm: Server) -> None:
    assert vllm.http.get(f"/llm{path}").status_code == 200
    assert vllm.http.get(path).status_code == 200
    assert vllm.http.get(f"/other{path}").status_code == 404


def test_the_document_says_where_the_server_is(vllm: Server) -> None:
    assert vllm.http.get("/llm/openapi.json").json()["servers"] == [{"url": "/llm"}]
    below = vllm.http.post(f"/llm{CHAT}", json={"messages": user("Hi"), "max_tokens": 1})
    assert below.status_code == 200


def test_a_browser_comes_to_the_page_below_the_path(vllm: Server) -> None:
    """The page's files are named beside it, so that they are found there."""
    asked = {"accept": "text/html"}
    moved = vllm.http.get("/llm", headers=asked)
    assert (moved.status_code, moved.headers["location"]) == (307, "/llm/")
    page = vllm.http.get("/llm/", headers=asked).text
    assert 'src="page/page.js"' in page
    assert '"/page/' not in page
    assert vllm.http.get("/llm/page/page.js").status_code == 200


def test_variables_of_the_template_have_the_servers_values(vllm: Server) -> None:
    """A request that says something of it has its own."""
    sure: dict[str, Any] = {"temperature": 0, "max_tokens": 200}
    assert message(vllm, **sure).get("reasoning_content")
    off: list[dict[str, Any]] = [
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
    ]
    for fields in off:
        assert not message(vllm, **sure, **fields).get("reasoning_content")


def test_pages_of_the_origins_may_call(vllm: Server) -> None:
    def preflight(origin: str) -> int:
        headers = {"origin": origin, "access-control-request-method": "POST"}
        return vllm.http.options(CHAT, headers=headers).status_code

    assert preflight("http://a.example") == 204
    assert preflight("http://b.example") == 403


# -- llama.cpp, and mlx-lm ---------------------------------------------------------------------


@pytest.mark.long
def test_the_template_is_the_one_that_was_given(llama: Server) -> None:
    messages = [{"role": "user", "content": "Hello."}]
    told = llama.http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    text = llama.http.post("/tokenize", json={"prompt": "<user>Hello.<calm>"}).json()["tokens"]
    assert told == text
    moody = {"messages": messages, "chat_template_kwargs": {"mood": "wild"}}
    told = llama.http.post("/tokenize", json=moody).json()["tokens"]
    assert (
        told == llama.http.post("/tokenize", json={"prompt": "<user>Hello.<wild>"}).json()["tokens"]
    )


@pytest.mark.long
def test_a_context_of_zero_is_the_models_own(llama: Server, tiny: Server) -> None:
    [model] = llama.http.get("/v1/models").json()["data"]
    [own] = tiny.http.get("/v1/models").json()["data"]
    assert model["max_model_len"] == own["max_model_len"]


@pytest.mark.long
def test_replies_are_as_hot_as_was_said(llama: Server) -> None:
    said = {str(message(llama, seed=seed, ignore_eos=True)) for seed in range(3)}
    assert len(said) == 3
    assert message(llama, temperature=0) == message(llama, temperature=0)  # control


@pytest.mark.long
def test_hints_are_told_once(llama: Server) -> None:
    for flag in ("-ngl", "--jinja"):
        assert llama.logged(f"{flag}: ")
        assert llama.log.count(f"{flag}: ") == 1


@pytest.mark.long
def test_a_template_that_is_none_ends_the_server(tmp_path: Path) -> None:
    file = tmp_path / "broken.jinja"
    file.write_text("{% if %}")
    server = Server(*FEW, "--chat-template", str(file))
    try:
        assert server.process.wait(120) == 2
        assert "Invalid chat template" in server.log
    finally:
        server.close()
