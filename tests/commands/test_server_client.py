"""How commands find a server and talk to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bushel.commands.server_client import ServerClient, ServerError, find_server
from bushel.core import BushelError
from bushel.core.held_files import VARIABLE
from bushel.core.running_servers import announced, running_servers
from tests.commands.conftest import KEY
from tests.server.server_process import Server, free_port

NOBODY = "http://127.0.0.1:9"
QUESTION = {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 8}


@pytest.fixture(autouse=True)
def own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for name in ("BUSHEL_URL", "BUSHEL_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_running_server_is_found_without_its_address(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(server.runtime))
    found = find_server(key=KEY)
    assert found is not None
    assert found.url == server.url
    [card] = found.models()
    assert card["id"] == "bushel:tiny"
    [record] = running_servers()
    assert record.process == server.process.pid


def test_a_server_that_was_killed_is_not_found() -> None:
    """It has no time to take back what it announced."""
    name = f"{announced.__module__} import {announced.__name__}"
    script = f"from {name}; held = announced('::', 7000); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert [record.url for record in running_servers()] == ["http://[::1]:7000"]
        process.kill()
        process.wait()
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
    client = ServerClient(f"127.0.0.1:{server.port}/v1/", KEY)
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
