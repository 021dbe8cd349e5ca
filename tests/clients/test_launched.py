"""`bushel launch` starts real agents that finish their task, whatever their own settings say."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.clients.agents import run
from tests.clients.conftest import Make, Needs, Scripted
from tests.clients.launched import AIDER, KEY, LAUNCHED, own_settings
from tests.clients.relay import Relay
from tests.clients.scripted_model import Script, calling_once
from tests.clients.test_agents import ASK, PATHS, completed, edit, reused, summary


def kept(before: str, path: Path) -> bool:
    """Clients add to their own files: a scheme, a folder that is trusted. What was there stays."""
    read = tomllib.loads if path.suffix == ".toml" else json.loads
    after = read(path.read_text())
    return all(after[name] == value for name, value in read(before).items())


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_launched_agent_reads_a_file_with_its_tool(
    name: str, client: Needs, ground: Make, project: Path, secret: str, scripted: Scripted
) -> None:
    """Through a server with a key; the user's own settings lead elsewhere and stay."""
    agent = LAUNCHED[name]
    client(agent.client)
    assert agent.read is not None
    scripts = calling_once(*agent.read(project / "hello.txt"))
    with scripted(scripts, "--api-key", KEY) as (server, relay):
        server.http.headers["authorization"] = f"Bearer {KEY}"
        here = ground(relay, "scripted")
        own = own_settings(agent.client, here)
        before = own.read_text()
        completed(agent, relay, run(agent.launch(here, ASK), here), secret)
        assert kept(before, own)
        asked = [it for it in relay.exchanges if it.path == PATHS[agent.api]]
        assert {json.loads(it.body)["model"] for it in asked} == {"scripted"}
        reused(server)


def test_a_launched_opencode_reads_a_file_with_the_tiny_model(
    client: Needs, ground: Make, tiny: Relay, secret: str
) -> None:
    agent = LAUNCHED["opencode"]
    client(agent.client)
    here = ground(tiny, "bushel:tiny")
    completed(agent, tiny, run(agent.launch(here, ASK), here), secret)


def test_a_launched_aider_edits_a_file(
    client: Needs, ground: Make, project: Path, secret: str, scripted: Scripted
) -> None:
    client("aider")
    scripts = [Script(edit(secret, "bonjour")), Script("Done.", when=" words that nobody says")]
    with scripted(scripts, "--api-key", KEY) as (_, relay):
        here = ground(relay, "scripted")
        own = own_settings("aider", here)
        before = own.read_bytes()
        done = run(AIDER.launch(here, "Change the greeting."), here)
        told = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}\n{summary(relay.exchanges)}"
        assert (project / "hello.txt").read_text() == "bonjour\n", told
        assert all(exchange.status == 200 for exchange in relay.exchanges), told
        assert own.read_bytes() == before
