"""How commands find a server and talk to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bushel.commands.server_client import ServerClient, ServerError, find_server
from bushel.core import BushelError
from bushel.core.held_files import VARIABLE
from bushel.core.running_servers import announced, running_servers
from tests.server.server_process import FEW, Server, free_port, serving

NOBODY = "http://127.0.0.1:9"
QUESTION = {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 8}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*FEW, "--api-key", "right") as running:
        yield running


@pytest.fixture(autouse=True)
def own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for name in ("BUSHEL_URL", "BUSHEL_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_running_server_is_found_without_its_address(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(server.runtime))
    found = find_server(key="right")
    assert found is not None
    assert found.url == server.url
    [card] = found.models()
    assert card["id"] == "bushel:tiny"
    [record] = running_servers()
    assert record.process == server.process.pid


def test_a_server_that_was_killed_is_not_found(tmp_path: Path) -> None:
    with serving(*FEW, runtime=tmp_path) as running:
        assert [record.url for record in running_servers()] == [running.url]
        os.kill(running.process.pid, 9)
        running.process.wait()
        assert running_servers() == []


def test_the_newest_comes_first_and_every_address_is_of_this_machine(tmp_path: Path) -> None:
    held = [announced(host, 7000 + at) for at, host in enumerate(("0.0.0.0", "::", "localhost"))]
    urls = ["http://localhost:7002", "http://[::1]:7001", "http://127.0.0.1:7000"]
    assert [record.url for record in running_servers()] == urls
    for one in held:
        one.close()
    assert running_servers() == []


@pytest.mark.parametrize("named", ["argument", "variable"])
def test_a_server_that_is_named_has_to_answer(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if named == "variable":
        monkeypatch.setenv("BUSHEL_URL", NOBODY)
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:9 does not answer: Connection refused"):
        find_server(NOBODY if named == "argument" else None)


def test_what_is_no_address_is_told() -> None:
    with pytest.raises(BushelError, match="Not the address of a server: ftp://x"):
        find_server("ftp://x")


def test_answers_stream_and_errors_are_in_the_servers_words(server: Server) -> None:
    client = ServerClient(f"127.0.0.1:{server.port}/v1/", "right")
    events = list(client.events("/v1/chat/completions", {**QUESTION, "stream": True}))
    said = "".join(
        event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"]
    )
    whole = client.post("/v1/chat/completions", QUESTION)
    assert said == whole["choices"][0]["message"]["content"]

    with pytest.raises(ServerError, match="max_tokens") as refused:
        client.post("/v1/chat/completions", {**QUESTION, "max_tokens": "many"})
    assert refused.value.status == 400
    with pytest.raises(ServerError, match="key") as locked:
        ServerClient(server.url, "wrong").models()
    assert locked.value.status == 401


def test_who_answers_in_another_language_is_no_server() -> None:
    with pytest.raises(ServerError, match="does not answer"):
        ServerClient(f"http://127.0.0.1:{free_port()}").get("/health")
