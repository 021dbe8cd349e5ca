"""`bushel launch`, with a stand-in for each client that records how it was started."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bushel.cli import main
from bushel.commands.agent_clients import AGENT_CLIENTS, Endpoint
from bushel.core.held_files import VARIABLE
from tests.commands.conftest import KEY
from tests.depth import often
from tests.server.server_process import FEW, Server, serving

CONTEXT = 65_536  # of bushel:tiny
STAND_IN = """#!{python}
import json, os, pathlib, sys
files = [word for word in (*sys.argv, *os.environ.values()) if word.startswith({folder!r})]
texts = {{name: pathlib.Path(name).read_text() for name in files if pathlib.Path(name).is_file()}}
seen = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "files": texts}}
pathlib.Path({record!r}).write_text(json.dumps(seen))
print("the client speaks")
sys.exit(int(os.environ.get("CODE", "0")))
"""
CLIENTS = sorted(AGENT_CLIENTS)
Launched = Callable[..., tuple[subprocess.CompletedProcess[str], dict[str, Any]]]


@pytest.fixture(autouse=True)
def own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "runtime"))
    for name in ("BUSHEL_URL", "BUSHEL_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def launched(tmp_path: Path) -> Launched:
    """Runs `bushel launch` in a home of its own, where every client is a stand-in."""
    folder, home = tmp_path / "bin", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    record = tmp_path / "record.json"
    text = STAND_IN.format(python=sys.executable, record=str(record), folder=str(tmp_path))
    for client in AGENT_CLIENTS.values():
        (folder / client.program).write_text(text)
        (folder / client.program).chmod(0o755)

    def launch(
        *arguments: str, **environment: str
    ) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        env = {
            **os.environ,
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "ANTHROPIC_API_KEY": "of-somebody-else",
            **environment,
        }
        record.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "bushel", "launch", *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done, json.loads(record.read_text()) if record.exists() else {}

    return launch


def everything(seen: dict[str, Any]) -> str:
    """All that a client was told, as one text."""
    return json.dumps([seen["arguments"], seen["environment"], list(seen["files"].values())])


@pytest.mark.parametrize("client", often(CLIENTS, "codex"))
def test_a_client_is_told_address_key_model_and_context(
    client: str,
    server: Server,
    launched: Launched,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRANSFORMERS_VERBOSITY", raising=False)
    done, seen = launched(client, "--url", server.url, "--api-key", KEY, "--", "-x", "a word")
    assert (done.returncode, done.stdout) == (0, "the client speaks\n"), done.stderr
    assert seen["arguments"][-2:] == ["-x", "a word"]
    told = everything(seen)
    assert "bushel:tiny" in told
    assert server.url in told
    assert str(CONTEXT) in told
    assert KEY in seen["environment"].values()
    assert list((tmp_path / "home").iterdir()) == []
    assert "TRANSFORMERS_VERBOSITY" not in seen["environment"]


def test_claude_code_asks_nobody_else_and_waits(server: Server, launched: Launched) -> None:
    variables = {"CLAUDE_CODE_USE_BEDROCK": "1", "BUSHEL_API_KEY": KEY}
    _, seen = launched("claude", "--url", server.url, **variables)
    environment = seen["environment"]
    assert environment["ANTHROPIC_AUTH_TOKEN"] == KEY
    assert not {"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"} & environment.keys()
    models = {name for name, text in environment.items() if text == "bushel:tiny"}
    assert {
        "ANTHROPIC_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL",
    } <= models
    assert int(environment["CLAUDE_STREAM_IDLE_TIMEOUT_MS"]) > 300_000
    assert environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == str(CONTEXT)
    assert int(environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]) < CONTEXT / 2
    # The same in a file, because variables in a user's own settings win over the environment.
    text = seen["files"][seen["arguments"][-1]]
    assert json.loads(text)["env"].items() <= environment.items()
    assert KEY not in text


@pytest.mark.parametrize("client", often(CLIENTS, "claude"))
def test_what_is_printed_starts_the_same_and_hides_the_key(
    client: str, server: Server, launched: Launched
) -> None:
    named = ("--url", server.url, "--api-key", "right")
    _, seen = launched(client, *named, "--", "it's")
    shown, nothing = launched(client, *named, "--print", "--", "it's")
    assert (shown.returncode, nothing) == (0, {})
    assert "=right" not in shown.stdout
    assert '"right"' not in shown.stdout
    environment = {**seen["environment"], "BUSHEL_API_KEY": KEY, "ANTHROPIC_API_KEY": "x"}
    subprocess.run(["sh", "-c", shown.stdout], env=environment, check=True, capture_output=True)
    words = shlex.split(shown.stdout)
    assert words[-1] == "it's"
    assert [word for word in words if word in seen["arguments"]] == seen["arguments"]

    done, nothing = launched(client, *named, "--json", "--", "it's")
    told = json.loads(done.stdout)
    assert nothing == {}
    assert told["command"][1:] == seen["arguments"]
    assert told["environment"].items() <= seen["environment"].items()
    assert KEY not in told["environment"].values()
    if told["key_variable"]:
        assert seen["environment"][told["key_variable"]] == KEY


def test_the_clients_exit_code_is_passed_on(server: Server, launched: Launched) -> None:
    done, _ = launched("aider", "--url", server.url, "--api-key", KEY, CODE="7")
    assert done.returncode == 7


def test_another_name_of_the_model_is_taken_and_a_wrong_one_is_told(
    server: Server, launched: Launched
) -> None:
    done, seen = launched("codex", "--url", server.url, "--api-key", KEY, "--model", "other")
    assert done.returncode == 0
    assert 'model="other"' in seen["arguments"]
    done, seen = launched("codex", "--url", server.url, "--api-key", KEY, "--model", "none")
    assert (done.returncode, seen) == (2, {})
    assert done.stderr == "bushel: The server has no model none. It has: bushel:tiny.\n"


def choose_the_second(launched: Launched, url: str) -> dict[str, str]:
    """The client's environment."""
    done, seen = launched("claude", "--url", url)
    assert (done.returncode, seen) == (2, {})
    assert "several models: one, two. Choose one with --model." in done.stderr
    done, seen = launched("claude", "--url", url, "--model", "two")
    assert done.returncode == 0, done.stderr
    assert seen["environment"]["ANTHROPIC_MODEL"] == "two"
    assert seen["environment"]["ANTHROPIC_AUTH_TOKEN"] == "any"
    return dict(seen["environment"])


def test_one_of_several_models_is_chosen(launched: Launched) -> None:
    with models_of(one=CONTEXT, two=CONTEXT) as url:
        choose_the_second(launched, url)


@pytest.mark.long
def test_of_several_models_one_is_loaded_to_know_its_context(launched: Launched) -> None:
    with serving(*FEW, model=("one=bushel:tiny", "two=bushel:tiny")) as several:
        environment = choose_the_second(launched, several.url)
    assert environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == str(CONTEXT)


@pytest.mark.long
def test_without_a_key_no_variable_of_bushel_reaches_the_client(launched: Launched) -> None:
    with models_of(one=CONTEXT) as url:
        for client in ("codex", "opencode"):
            done, seen = launched(client, "--url", url)
            assert done.returncode == 0, done.stderr
            assert "BUSHEL_API_KEY" not in everything(seen)


def test_a_wrong_key_is_told_in_a_line(server: Server, launched: Launched) -> None:
    done, seen = launched("claude", "--url", server.url)
    assert (done.returncode, seen) == (2, {})
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("Give it with --api-key, or in BUSHEL_API_KEY.\n")


def test_a_client_that_is_not_installed_is_told_how_to(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    for name, client in AGENT_CLIENTS.items():
        assert main(["launch", name, "--url", server.url, "--api-key", KEY]) == 2
        assert capsys.readouterr().err == (
            f"bushel: {client.title} is not installed: {client.install}\n"
        )


def test_without_a_server_it_says_how_to_start_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSHEL_PORT", "9")
    assert main(["launch", "claude"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(
        "bushel: No server runs here. Start one in another terminal: bushel serve"
    )
    assert told.count("\n") == 1


@contextlib.contextmanager
def models_of(**contexts: int) -> Iterator[str]:
    """The address of a server that says nothing but what its models are."""
    cards = [{"id": name, "root": name, "max_model_len": at} for name, at in contexts.items()]

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            payload = json.dumps({"data": cards}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_POST = do_GET  # a model is loaded to know its context

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def test_a_context_that_is_too_small_is_told_and_a_larger_one_is_not(launched: Launched) -> None:
    with models_of(small=16_384) as url:
        done, seen = launched("claude", "--url", url)
        assert done.returncode == 0
        assert seen["environment"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "16384"
        assert done.stderr.startswith("bushel: small has a context of 16,384 tokens")
        assert done.stderr.count("\n") == 1
        done, _ = launched("aider", "--url", url)
        assert done.stderr == ""


# -- what else tells people how to point clients at a server -------------------------------

ROOT = Path(__file__).parents[2]


def told_by_launch(client: str, folder: Path) -> str:
    to = Endpoint("http://127.0.0.1:8000", "NAME", folder, KEY, 32_768)
    settings = AGENT_CLIENTS[client].settings(to)
    variables = (*settings.environment, *settings.environment.values(), settings.key_variable or "")
    return " ".join((*variables, *settings.arguments))


@pytest.mark.parametrize("client", ["claude", "codex", "opencode", "qwen"])
def test_the_page_sets_nothing_that_launch_does_not(client: str, tmp_path: Path) -> None:
    title = {"opencode": "OpenCode"}.get(client, AGENT_CLIENTS[client].title)
    page = (ROOT / "page" / "src" / "connect.tsx").read_text()
    source = page.split(f'name: "{title}"')[1].split("\n  },\n")[0]
    told = told_by_launch(client, tmp_path)
    variables = re.findall(r"export ([A-Z_]+)=", source)
    keys = re.findall(r"(?:\b|\\n)([a-z_]+) = ", source) if client == "codex" else []
    fields = re.findall(r"\b(npm|baseURL|apiKey|tool_call|context|output)\b:", source)
    assert variables or keys or fields
    for name in (*variables, *keys, *fields):
        assert name in told


def test_what_the_manual_sets_by_hand_launch_sets_alike(tmp_path: Path) -> None:
    manual = (ROOT / "docs" / "guides" / "agents.md").read_text().split("By hand:")[1]
    shells = {"claude": "# Claude Code", "qwen": "# Qwen Code", "aider": "# aider"}
    for client, heading in shells.items():
        told = told_by_launch(client, tmp_path)
        recipe = manual.split(heading)[1].split("\n\n")[0].split("```")[0]
        pairs = re.findall(r"([A-Z_]+)=(\S+)", recipe)
        assert pairs
        for name, value in pairs:
            assert name in told
            assert value in ("any", *told.split())
    assert all(f"`{name}`" in manual_of_launch() for name in AGENT_CLIENTS if name != "claude")


def manual_of_launch() -> str:
    return (ROOT / "docs" / "guides" / "agents.md").read_text().split("By hand:")[0]
