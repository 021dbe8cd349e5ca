"""Real coding agents, from their packages, finish a task that needs a tool (B50).

Each is asked what a file says and has to read it: the first reply calls its tool, the second
repeats what the tool returned, words that were drawn for this test.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients import scripted_model
from tests.clients.agents import AGENTS, Agent, Ground, run
from tests.clients.relay import Exchange, Relay, relaying
from tests.server.serving import serving

ASK = "What is in hello.txt?"
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
MAIN = [name for name, agent in AGENTS.items() if agent.read]


def completed(
    agent: Agent, relay: Relay, done: subprocess.CompletedProcess[str], secret: str
) -> None:
    """It said what the file says, after the model had been told it by the tool."""
    exchanges = relay.exchanges
    told = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}\n{summary(exchanges)}"
    assert done.returncode == 0, told
    assert secret in done.stdout, told
    asked = [it for it in exchanges if it.path == PATHS[agent.api]]
    assert len(asked) >= 2, told
    assert secret not in asked[0].text, told
    assert any(secret in it.text for it in asked), told
    assert all(it.status == 200 for it in exchanges), told


def summary(exchanges: list[Exchange]) -> str:
    return "\n".join(
        f"{it.method} {it.target} {it.status} {it.reply[:300] if it.status != 200 else b''!r}"
        for it in exchanges
    )


@pytest.mark.parametrize("name", MAIN)
def test_an_agent_reads_a_file_with_its_tool(
    name: str,
    client: Callable[[str], None],
    ground: Callable[[Relay, str], Ground],
    project: Path,
    secret: str,
    tmp_path: Path,
) -> None:
    """B50. With the scripted model, because most agents' prompts are beyond the tiny one."""
    agent = AGENTS[name]
    client(agent.client)
    assert agent.read is not None
    tool, arguments = agent.read(project / "hello.txt")
    model = scripted_model.write(tmp_path / "scripted", scripted_model.agent(tool, arguments))
    with (
        serving("--trust-remote-code", model=str(model)) as server,
        relaying(server.port) as relay,
    ):
        here = ground(relay, "scripted")
        completed(agent, relay, run(agent.launch(here, ASK), here), secret)


def test_claude_code_speaks_to_a_model_under_a_name_it_knows(
    client: Callable[[str], None],
    ground: Callable[[Relay, str], Ground],
    project: Path,
    secret: str,
    tmp_path: Path,
) -> None:
    """B50. Its bodies are of another shape then: reminders in user turns, a thinking budget."""
    agent = AGENTS["claude-code"]
    client(agent.client)
    tool, arguments = "Read", {"file_path": str(project / "hello.txt")}
    model = scripted_model.write(tmp_path / "scripted", scripted_model.agent(tool, arguments))
    flags = ("--trust-remote-code", "--model-alias", "claude-*=scripted")
    with serving(*flags, model=str(model)) as server, relaying(server.port) as relay:
        here = ground(relay, "claude-sonnet-4-5")
        completed(agent, relay, run(agent.launch(here, ASK), here), secret)
        assert '"budget_tokens"' in relay.exchanges[0].text


TINY = ["llm", "pi-chat"]


@pytest.mark.parametrize("name", TINY)
def test_an_agent_reads_a_file_with_the_tiny_model(
    name: str,
    client: Callable[[str], None],
    ground: Callable[[Relay, str], Ground],
    tiny: Relay,
    secret: str,
) -> None:
    """B50. The model that comes with Bushel chooses the tool, and says what it returned."""
    agent = AGENTS[name]
    client(agent.client)
    here = ground(tiny, "bushel:tiny")
    completed(agent, tiny, run(agent.launch(here, ASK), here), secret)


def _edit(old: str, new: str) -> str:
    return f"hello.txt\n```\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```"


def test_aider_edits_a_file_until_its_check_passes(
    client: Callable[[str], None],
    ground: Callable[[Relay, str], Ground],
    project: Path,
    secret: str,
    tmp_path: Path,
) -> None:
    """B50. Its first edit fails the check, whose output reaches the model, which edits again."""
    client("aider")
    (project / "check.sh").write_text(
        "grep -q bonjour hello.txt || { echo 'Error: please say bonjour'; exit 1; }\n"
    )
    scripts = [
        scripted_model.Script(_edit(secret, "bonsoir")),
        scripted_model.Script(_edit("bonsoir", "bonjour"), when=" please say bonjour"),
    ]
    model = scripted_model.write(tmp_path / "scripted", scripts)
    with (
        serving("--trust-remote-code", model=str(model)) as server,
        relaying(server.port) as relay,
    ):
        here = ground(relay, "scripted")
        done = run(AGENTS["aider"].launch(here, "Change the greeting."), here)
        told = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}\n{summary(relay.exchanges)}"
        assert (project / "hello.txt").read_text() == "bonjour\n", told
        first, second = relay.exchanges[:2]
        assert secret in first.text
        assert "bonsoir" not in first.text
        assert "please say bonjour" in second.text
        assert all(it.status == 200 for it in relay.exchanges), told
