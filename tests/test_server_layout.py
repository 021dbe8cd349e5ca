"""The front's APIs stand side by side: what they share is in `api`, and none knows another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_layout import ROOT, imported, module_of

SERVER = ROOT / "server"
SHARED = "api"
APIS = ("openai", "anthropic", "responses", "ollama", "llama_cpp")
# Who puts the APIs together; everyone else in the front works for all of them alike.
OVER_THEM = {
    "admin",
    "app",
    "apply_template",
    "error_response",
    "model_control",
    "tokenization",
}
MODULES = sorted(SERVER.rglob("*.py"))


def room_of(module: str) -> str:
    """A module's own package inside the front, or its own name."""
    return module.split(".")[2] if module.count(".") > 1 else ""


def trespasses(source: str, module: str) -> set[str]:
    """Imports, inside the front, that `module` may not have."""
    room = room_of(module)
    forbidden = set() if room in OVER_THEM else {api for api in APIS if api != room}
    if room in (SHARED, *APIS):
        forbidden |= OVER_THEM
    names = {name for name in imported(source, module) if name.startswith("bushel.server.")}
    return {name for name in names if room_of(name) in forbidden}


@pytest.mark.parametrize("path", MODULES, ids=module_of)
def test_no_api_is_known_to_another_nor_to_what_they_share(path: Path) -> None:
    assert trespasses(path.read_text(), module_of(path)) == set()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bushel.server.anthropic.routes", "from bushel.server.openai.schema import Sampling"),
        ("bushel.server.responses.writer", "from bushel.server.openai import chunks"),
        ("bushel.server.responses.writer", "from ..openai import chunks"),
        ("bushel.server.openai.chat.routes", "import bushel.server.responses.store"),
        ("bushel.server.api.errors", "from bushel.server.anthropic.errors import error_bytes"),
        ("bushel.server.api.request", "def late():\n    from bushel.server.app import create_app"),
        ("bushel.server.api.response", "from bushel.server.openai.chunks import Chunked"),
    ],
)
def test_control_a_trespass_is_reported(module: str, source: str) -> None:
    assert trespasses(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bushel.server.anthropic.routes", "from bushel.server.api.errors import InvalidField"),
        ("bushel.server.anthropic.routes", "from bushel.server.anthropic.tools import offer"),
        ("bushel.server.app", "from bushel.server.openai.chat.routes import chat_routes"),
        ("bushel.server.api.request", "from openai import OpenAI\nimport anthropic"),
    ],
)
def test_control_what_is_shared_and_what_is_ones_own_is_not(module: str, source: str) -> None:
    assert trespasses(source, module) == set()


@pytest.mark.parametrize(
    "folder",
    ["openai/chat", "openai/completions", "anthropic", "responses", "ollama", "llama_cpp"],
)
def test_every_api_has_the_same_parts(folder: str) -> None:
    parts = {path.stem for path in (SERVER / folder).glob("*.py")}
    wanted = {"routes", "schema", "writer", "conversation"}
    if folder in ("openai/completions", "llama_cpp"):  # a prompt is no conversation
        wanted -= {"conversation"}
    assert wanted <= parts


def other_errors(source: str, module: str) -> set[str]:
    """Ways to refuse a field beside `api.errors.InvalidField`."""
    names = {name.rpartition(".")[2] for name in imported(source, module)}
    return names & {"PydanticCustomError", "RequestError", "RequestValidationError"}


@pytest.mark.parametrize("folder", [SHARED, *APIS])
def test_an_invalid_field_is_refused_in_one_way_only(folder: str) -> None:
    for path in (SERVER / folder).rglob("*.py"):
        assert other_errors(path.read_text(), module_of(path)) == set()


def test_control_another_way_is_reported() -> None:
    assert other_errors("from bushel.core import RequestError", "bushel.server.api.fields")
