"""Other people's libraries, from their packages, against `bushel:tiny`: what it says is right.

Each asks for the weather, whose figure is drawn for the test, and for an object made of a text.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agents import Launch, run
from tests.clients.conftest import Make, Needs
from tests.clients.install import place
from tests.clients.relay import Relay
from tests.clients.test_agents import summary

HERE = Path(__file__).parent / "libraries"
QUESTION = "What is the weather in Oslo?"
TEXT = "name Ann, age 31, city Oslo\n\nReturn a JSON object with name, age, city."
PERSON = {"name": "Ann", "age": 31, "city": "Oslo"}
MODEL = "bushel:tiny"
Ask = Callable[[str, str], dict[str, Any]]


@pytest.fixture
def degrees() -> int:
    return random.randint(100, 999)


@pytest.fixture
def ask(client: Needs, ground: Make, tiny: Relay, tmp_path: Path, degrees: int) -> Ask:
    """Runs a library's script with an API; returns what it printed."""

    def asked(name: str, api: str) -> dict[str, Any]:
        client(name)
        here = ground(tiny, MODEL)
        words = [api, here.url, here.model, degrees, QUESTION, TEXT]
        if name == "ai":
            client("node")
            script = Path(shutil.copy(HERE / "use_ai.mjs", tmp_path))
            (tmp_path / "node_modules").symlink_to(place("ai") / "node_modules")
            command: list[Any] = ["node", script, *words]
        else:
            command = [place(name) / "bin" / "python", HERE / f"use_{name}.py", *words]
        done = run(Launch(command, {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}), here)
        told = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{summary(tiny.exchanges)}"
        assert done.returncode == 0, told
        assert all(exchange.status == 200 for exchange in tiny.exchanges), told
        return dict(json.loads(done.stdout.splitlines()[-1]))

    return asked


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
@pytest.mark.parametrize("name", ["langchain", "pydantic", "ai", "litellm"])
def test_a_library_calls_a_tool_and_makes_an_object(
    name: str, api: str, ask: Ask, degrees: int
) -> None:
    """The call, the answer from its result and the object are right, streamed or not. B18, B23."""
    said = ask(name, api)
    # For models it does not know, litellm makes the stream of /v1/responses up by itself, and
    # writes the arguments of a call twice.
    ways = ["whole"] if (name, api) == ("litellm", "responses") else ["whole", "streamed"]
    for way in ways:
        assert said[way]["call"] == ["get_weather", {"city": "Oslo"}]
        assert str(degrees) in said[way]["answer"]
    assert said["object"] == PERSON


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_instructor_makes_objects(api: str, ask: Ask) -> None:
    """Through tools, JSON mode and a schema, whole and in parts. B23."""
    said = ask("instructor", api)
    assert said
    assert all(one == PERSON for one in said.values()), said
