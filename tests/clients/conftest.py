"""Only on request: these tests need hundreds of megabytes of other people's programs."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.clients.agents import Ground
from tests.clients.install import installed
from tests.clients.relay import Relay, relaying
from tests.clients.scripted_model import Script, write
from tests.server.server_process import Server, serving

Needs = Callable[[str], None]
Make = Callable[[Relay, str], Ground]


@pytest.fixture(scope="session")
def _clients() -> None:
    if not os.environ.get("BUSHEL_TEST_CLIENTS"):
        pytest.skip("BUSHEL_TEST_CLIENTS names no directory with real clients")
    if shutil.which("npm") is None:
        pytest.skip("npm is absent")


@pytest.fixture(scope="session")
def client(_clients: None) -> Needs:
    """Skips the test unless this client is there."""

    def needs(name: str) -> None:
        if not installed(name):
            pytest.skip(f"{name} is not installed: python -m tests.clients.install {name}")

    return needs


@pytest.fixture
def secret() -> str:
    """What stands in the file: words that no script and no model can know."""
    words = "amber birch cedar delta ember flint grove hazel ivory jade karst linen maple north"
    return " ".join(random.sample(words.split(), 4))


@pytest.fixture
def project(tmp_path: Path, secret: str) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "hello.txt").write_text(f"{secret}\n")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


@pytest.fixture
def ground(tmp_path: Path, project: Path) -> Make:
    """Makes the place where a client runs, from whom it asks and for which model."""

    def make(relay: Relay, model: str) -> Ground:
        home = tmp_path / "home"
        home.mkdir()
        return Ground(home, project, relay.url, model)

    return make


Scripted = Callable[..., AbstractContextManager[tuple[Server, Relay]]]


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    """`bushel serve` with a model that follows these scripts, called "scripted"."""

    @contextmanager
    def serve(scripts: Sequence[Script], *flags: str) -> Iterator[tuple[Server, Relay]]:
        model = write(tmp_path / "scripted", scripts)
        with (
            serving("--trust-remote-code", *flags, model=str(model)) as server,
            relaying(server.port) as relay,
        ):
            yield server, relay

    return serve


@pytest.fixture(scope="session")
def _tiny(_clients: None) -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def tiny(_tiny: Server) -> Iterator[Relay]:
    """`bushel serve` with the model that comes with it."""
    with relaying(_tiny.port) as relay:
        yield relay
