"""Real coding agents, from their packages, finish a task that needs a tool.

Each is asked what a file says and has to read it: the first reply calls its tool, the second
repeats what the tool returned, words that were drawn for this test.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path

import pytest

from tests.clients.agents import AGENTS, Agent, run
from tests.clients.conftest import Make, Needs, Scripted
from tests.clients.relay import Exchange, Relay
from tests.clients.scripted_model import RESULT, Script, call, calling_once
from tests.server.server_process import Server

ASK = "What is in hello.txt?"
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
TINY = ["llm", "pi-chat", "pi-messages", "pi-responses", "opencode-chat"]
MAIN = [name for name, agent in AGENTS.items() if agent.read]


def completed(
    agent: Agent, relay: Relay, done: subprocess.CompletedProcess[str], secret: str
) -> None:
    """It said what the file says, after the model had been told it by the tool."""
    exchanges = relay.exchanges
    told = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}\n{summary(exchanges)}"
    assert done.returncode == 0, told
    assert secret in done.stdout, told
    asked = [exchange for exchange in exchanges if exchange.path == PATHS[agent.api]]
    assert len(asked) >= 2, told
    assert secret not in asked[0].text, told
    assert any(secret in it.text for it in asked), told
    seen = {(exchange.method, exchange.path, exchange.status) for exchange in exchanges}
    assert {it for it in seen if it[2] != 200} == set(agent.refused), told


def summary(exchanges: list[Exchange]) -> str:
    def line(one: Exchange) -> str:
        shown = b"" if one.status == 200 else one.reply[:300]
        return f"{one.method} {one.target} {one.status} {shown!r}"

    return "\n".join(map(line, exchanges))


def reused(server: Server, turns: int = 2) -> None:
    """Every prompt goes on where the one before it ended. B19, B35."""
    # Titles and the like are shorter.
    found = sorted(server.status()["recent"], key=lambda it: it["prompt_tokens"])[-turns:]
    for first, second in itertools.pairwise(found):
        assert second["cached_tokens"] >= first["prompt_tokens"] - 1, (first, second)


@pytest.mark.parametrize("name", MAIN)
def test_an_agent_reads_a_file_with_its_tool(
    name: str, client: Needs, ground: Make, project: Path, secret: str, scripted: Scripted
) -> None:
    """With the scripted model: most prompts are beyond the tiny one. B10, B18, B23, B50."""
    agent = AGENTS[name]
    client(agent.client)
    assert agent.read is not None
    alias = ("--model-alias", f"{agent.name}=scripted") if agent.name else ()
    with scripted(calling_once(*agent.read(project / "hello.txt")), *alias) as (server, relay):
        here = ground(relay, agent.name or "scripted")
        completed(agent, relay, run(agent.launch(here, ASK), here), secret)
        reused(server)


def test_claude_code_loads_a_deferred_tool(
    client: Needs, ground: Make, project: Path, secret: str, scripted: Scripted
) -> None:
    """It sends the tool's definition among the others then; what is cached stays valid. B19."""
    agent = AGENTS["claude-code"]
    client(agent.client)
    file = project / "hello.txt"
    file.write_text(f"these known words: {secret}\n")
    search = call("ToolSearch", {"query": "select:WebFetch", "max_results": 5})
    scripts = [
        Script("A short title"),
        Script(search, when="<tool_call>"),
        Script(call("Read", {"file_path": str(file)}), when="<tool_response>"),
        Script(f"The tool said:{RESULT}", when=" known words"),
    ]
    with scripted(scripts) as (server, relay):
        here = ground(relay, "scripted")
        completed(agent, relay, run(agent.launch(here, ASK), here), secret)
        before, after, *_ = (json.loads(exchange.body)["tools"] for exchange in relay.exchanges)
        assert len(after) > len(before)
        assert '"tool_reference"' in relay.exchanges[1].text
        reused(server, turns=3)


@pytest.mark.parametrize("name", TINY)
def test_an_agent_reads_a_file_with_the_tiny_model(
    name: str, client: Needs, ground: Make, tiny: Relay, secret: str
) -> None:
    """The model that comes with Bushel chooses the tool, and says what it returned. B18, B23."""
    agent = AGENTS[name]
    client(agent.client)
    here = ground(tiny, "bushel:tiny")
    completed(agent, tiny, run(agent.launch(here, ASK), here), secret)


def edit(old: str, new: str) -> str:
    return f"hello.txt\n```\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```"


def test_aider_edits_a_file_until_its_check_passes(
    client: Needs, ground: Make, project: Path, secret: str, scripted: Scripted
) -> None:
    """Its first edit fails the check, whose output reaches the model, which edits again. B14."""
    client("aider")
    (project / "check.sh").write_text(
        "grep -q bonjour hello.txt || { echo 'Error: please say bonjour'; exit 1; }\n"
    )
    scripts = [
        Script(edit(secret, "bonsoir")),
        Script(edit("bonsoir", "bonjour"), when=" please say bonjour"),
    ]
    with scripted(scripts) as (_, relay):
        here = ground(relay, "scripted")
        done = run(AGENTS["aider"].launch(here, "Change the greeting."), here)
        told = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}\n{summary(relay.exchanges)}"
        assert (project / "hello.txt").read_text() == "bonjour\n", told
        first, second = relay.exchanges[:2]
        assert secret in first.text
        assert "bonsoir" not in first.text
        assert "please say bonjour" in second.text
        assert all(exchange.status == 200 for exchange in relay.exchanges), told
