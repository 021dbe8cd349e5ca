"""Servers and models that many tests here only talk to: one of each per worker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import bushel

pytest.register_assert_rewrite("tests.server.compare_with_llm")

from tests.server.compare_with_llm import MODEL, Caller, Reference  # noqa: E402
from tests.server.server_process import FEW, Server, serving  # noqa: E402

SHORT = 48  # tokens of context
KEY = "sesame"
QUEUE = 6  # requests that may wait, where somebody tries it


@pytest.fixture(scope="session")
def _reference() -> Iterator[Reference]:
    from bushel import LLM  # loads MLX, which few of the tests here need

    with LLM(MODEL) as llm:
        yield Reference(llm)


@pytest.fixture(scope="session")
def _tiny() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def reference(_reference: Reference) -> Iterator[Reference]:
    """The model that `tiny` serves, in this process."""
    yield _reference
    _reference.llm.check_integrity()


@pytest.fixture
def tiny(_tiny: Server) -> Iterator[Server]:
    """`bushel serve` without any flag; no test may leave it other than it was."""
    yield _tiny
    assert _tiny.status()["engine"]["restarts"] == 0


@pytest.fixture(scope="session")
def stalled() -> Iterator[Server]:
    """A server for what may keep its event loop busy: it tells the longest stall of its life."""
    with serving(*FEW) as server:
        yield server


@pytest.fixture(scope="session")
def several_keys() -> Iterator[Server]:
    """A server of two users and an operator, which lets few of their requests wait."""
    keys = ("--api-key", "alice", "--api-key", "bob", "--operator-key", "root")
    with serving(*FEW, *keys, "--cache-per-key", "--queue-limit", str(QUEUE)) as server:
        yield server


@pytest.fixture(scope="session")
def _caller(_tiny: Server) -> Iterator[Caller]:
    caller = Caller(_tiny.url)
    yield caller
    caller.close()


@pytest.fixture
def caller(_caller: Caller, tiny: Server) -> Caller:
    """Someone who talks to `tiny`."""
    return _caller


@pytest.fixture(scope="session")
def short_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with so short a context that a test can reach its end."""
    return _with_context(tmp_path_factory.mktemp("short") / "short", SHORT)


@pytest.fixture(scope="session")
def far_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with so long a context that no text is refused before it is tokenized."""
    return _with_context(tmp_path_factory.mktemp("far") / "far", 1 << 30)


def _with_context(path: Path, tokens: int) -> Path:
    shutil.copytree(Path(str(bushel.__file__)).parent / "tiny", path)
    config = json.loads((path / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = tokens
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="session")
def short_reference(short_model: Path) -> Iterator[Reference]:
    from bushel import LLM

    with LLM(str(short_model)) as llm:
        yield Reference(llm)


@pytest.fixture(scope="session")
def short(short_model: Path) -> Iterator[Server]:
    """A server under other names, with a key, other defaults and no room for large bodies."""
    with serving(
        *FEW,
        *("--served-model-name", "small", "house-model"),
        *("--model-alias", "gpt-*=small"),
        *("--default-temperature", "3", "--default-top-p", "0.9"),
        *("--api-key", KEY, "--max-body-mb", "1"),
        model=str(short_model),
    ) as server:
        yield server
