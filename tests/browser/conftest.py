"""A browser and two servers for all tests of the page; none of it where there is no Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.visitor import Visitor
from tests.server.hub.hub_client import MODEL, HubOperator, hub_operator
from tests.server.server_process import FEW, Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
USER, OPERATOR = "user-key", "operator-key"
# Answers that are compared are the likeliest ones.
PLAIN = (*FEW, "--default-temperature", "0")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    drive = pytest.importorskip("playwright.sync_api", reason="make browsertest installs it")
    with drive.sync_playwright() as playwright:
        # Root, as in a container, has no sandbox.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For a server on whose disk there is no model of the hub."""
    return {"HF_HOME": str(tmp_path_factory.mktemp("home"))}


@pytest.fixture(scope="session")
def open_server(browser: Browser, empty_home: dict[str, str]) -> Iterator[Server]:
    """One model, and no key."""
    with serving(*PLAIN, env=empty_home) as server:
        yield server


@pytest.fixture(scope="session")
def keyed_server(browser: Browser, empty_home: dict[str, str]) -> Iterator[Server]:
    """Two models that come and go, a user's key and an operator's."""
    keys = ("--api-key", USER, "--operator-key", OPERATOR, "--keep-alive", "never")
    models = ("one=bushel:tiny", "two=bushel:tiny")
    with serving(*PLAIN, *keys, model=models, env=empty_home) as server:
        yield server


@pytest.fixture(scope="session")
def _hub(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubOperator]:
    flags = ("--default-temperature", "0", "--keep-alive", "never", "--downloaded")
    with hub_operator(tmp_path_factory.mktemp("hub"), *flags) as operator:
        yield operator


@pytest.fixture
def hub(_hub: HubOperator) -> Iterator[HubOperator]:
    """A server that serves what is downloaded from a hub on this machine, and its operator."""
    yield _hub
    _hub.ask("POST", f"/v1/models/{MODEL}/unload")
    _hub.reset()


@pytest.fixture
def visitor(browser: Browser, open_server: Server) -> Iterator[Visitor]:
    """Nothing that they must not see may have been seen."""
    came = Visitor(browser, open_server.url)
    yield came
    came.close()
    assert came.problems == []
