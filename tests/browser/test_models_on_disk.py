"""A model comes from the hub, is loaded, looked into and removed, by somebody at the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from bushel.core.checkpoint import TINY, read_checkpoint
from tests.browser.test_keys_and_models import enter
from tests.browser.test_looks import AXE, SIZES, go, keep, violations
from tests.browser.visitor import Visitor
from tests.server.hub.hub_client import MODEL, OPERATOR, USER, HubOperator

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


NOTED = "console: Failed to load resource: the server responded with a status of 401"


@pytest.fixture
def guest(browser: Browser, hub: HubOperator) -> Iterator[Visitor]:
    """Somebody without a key yet, which a browser itself notes."""
    came = Visitor(browser, hub.server.url)
    yield came
    came.close()
    assert [problem for problem in came.problems if not problem.startswith(NOTED)] == []


def ask_for(visitor: Visitor, model: str) -> None:
    visitor.page.get_by_label("Download a model from the hub").fill(model)
    visitor.page.get_by_role("button", name="Download", exact=True).click()


def test_a_model_is_pulled_though_it_is_cut_off_loaded_inspected_and_removed(
    guest: Visitor, hub: HubOperator
) -> None:
    """All that an operator can do with a model of the hub, without a terminal. B77, B78."""
    page = guest.page
    enter(page, OPERATOR)
    guest.view("Models")
    page.get_by_text("No model was downloaded yet").wait_for()

    hub.hub.cut, hub.hub.cut_only = 1000, ".safetensors"
    ask_for(guest, f"https://example.com/{MODEL}/")
    page.get_by_role("alert").filter(has_text="was cut off").wait_for()
    page.get_by_role("button", name=f"Go on with {MODEL}").click()
    page.get_by_role("progressbar", name=f"Download of {MODEL}").wait_for()
    page.get_by_role("alert").filter(has_text="was cut off").wait_for()  # once more
    hub.hub.cut = None
    hub.hub.go.clear()
    page.get_by_role("button", name=f"Go on with {MODEL}").click()
    page.get_by_text("of 15.9 MB · 6 of 7 files").wait_for()
    page.get_by_role("button", name=f"Cancel the download of {MODEL}").click()
    page.get_by_text("cancelled").wait_for()
    page.get_by_role("button", name=f"Go on with {MODEL}").click()
    page.get_by_text("of 15.9 MB · 6 of 7 files").wait_for()
    hub.hub.go.set()

    page.get_by_role("button", name=f"Remove {MODEL}").wait_for()
    page.get_by_role("button", name=f"Dismiss the download of {MODEL}").click()
    page.get_by_role("button", name=f"Load {MODEL}", exact=True).click()
    page.get_by_role("button", name=f"Unload {MODEL}").wait_for()
    removing = page.get_by_role("button", name=f"Remove {MODEL}")
    assert removing.is_disabled()

    page.get_by_role("button", name=f"Inspect {MODEL}", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("4 recurrent, 4 attention").wait_for()
    dialog.get_by_text("rows share a batch").wait_for()
    assert dialog.get_by_role("table").get_by_role("row").count() == 4
    dialog.get_by_role("button", name="Close").click()

    page.get_by_role("button", name=f"Unload {MODEL}").click()
    page.get_by_role("button", name=f"Load {MODEL}", exact=True).wait_for()
    removing.click()
    page.get_by_role("button", name="Keep").click()
    removing.click()
    page.get_by_role("button", name="Delete 15.9 MB").click()
    page.get_by_text(f"{MODEL} is gone").wait_for()
    page.get_by_text("No model was downloaded yet").wait_for()
    page.get_by_role("button", name=f"Load {MODEL}", exact=True).wait_for(state="detached")
    assert not hub.folder.exists()


def test_what_goes_wrong_is_told_in_the_servers_words(browser: Browser, hub: HubOperator) -> None:
    visitor = Visitor(browser, hub.server.url)
    page = visitor.page
    enter(page, "wrong")
    page.get_by_text("The API key is wrong.").wait_for()
    enter(page, USER)
    visitor.view("Models")
    page.get_by_text("Managing models on disk affects all API keys").wait_for()
    page.get_by_role("button", name="API key").click()
    enter(page, OPERATOR)
    ask_for(visitor, "../../etc")
    page.get_by_role("alert").filter(has_text="no hub id").wait_for()
    ask_for(visitor, "someone/else")
    page.get_by_role("alert").filter(has_text="nor a model of the hub").wait_for()
    page.get_by_role("button", name="Dismiss the download of someone/else").click()
    page.get_by_role("heading", name="Downloads").wait_for(state="detached")
    visitor.close()
    noted = "console: Failed to load resource: the server responded with a status of 40"
    assert [problem for problem in visitor.problems if not problem.startswith(noted)] == []


def test_a_server_of_one_model_says_how_another_is_served(
    visitor: Visitor, empty_home: dict[str, str]
) -> None:
    page = visitor.page
    visitor.view("Models")
    page.get_by_text("No model was downloaded yet").wait_for()
    page.get_by_role("button", name="Inspect bushel:tiny, as it is served").click()
    page.get_by_role("dialog").get_by_text("4 recurrent, 4 attention").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    # As another program would have brought it.
    folder = Path(empty_home["HF_HOME"]) / "hub" / "models--somebody--copy"
    shutil.copytree(read_checkpoint(TINY).path, folder / "snapshots" / "1")
    try:
        page.get_by_role("button", name="Look at the disk again").click()
        page.get_by_text("bushel serve somebody/copy").wait_for()
        page.get_by_role("button", name="Copy the command that serves somebody/copy").click()
        page.get_by_text("bushel serve --downloaded").wait_for()
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_models_on_disk_are_accessible_and_fit(
    browser: Browser, hub: HubOperator, size: str, scheme: Literal["light", "dark"]
) -> None:
    if not AXE.exists():
        pytest.skip("axe is not here: make page")
    options: dict[str, Any] = {"viewport": SIZES[size], "color_scheme": scheme, "bypass_csp": True}
    visitor = Visitor(browser, hub.server.url, has_touch=size == "phone", **options)
    page = visitor.page
    page.emulate_media(reduced_motion="reduce")
    found: dict[str, list[str]] = {}

    def look(name: str) -> None:
        keep(visitor, f"models-{name}-{scheme}-{size}")
        found[name] = violations(visitor)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} is {wide} pixels too wide"

    enter(page, OPERATOR)
    go(visitor, size, "Models")
    hub.hub.go.clear()
    ask_for(visitor, "someone/else")
    page.get_by_role("alert").filter(has_text="nor a model of the hub").wait_for()
    ask_for(visitor, MODEL)
    page.get_by_text("of 15.9 MB · 6 of 7 files").wait_for()
    look("downloading")
    hub.hub.go.set()
    page.get_by_role("button", name=f"Remove {MODEL}").click()
    page.get_by_role("button", name="Keep").wait_for()
    page.get_by_text("is here.").wait_for(state="hidden")
    look("on-disk")
    page.get_by_role("button", name=f"Inspect {MODEL}", exact=True).click()
    page.get_by_role("dialog").get_by_text("4 recurrent, 4 attention").wait_for()
    look("inspection")
    visitor.close()
    assert sorted({problem for problems in found.values() for problem in problems}) == []
    assert [problem for problem in visitor.problems if not problem.startswith(NOTED)] == []
