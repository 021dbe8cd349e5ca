"""A server with keys tells who may do what; models come and go on an operator's word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OPERATOR, USER
from tests.browser.visitor import Visitor
from tests.server.server_process import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture
def guest(browser: Browser, keyed_server: Server) -> Iterator[Visitor]:
    """Somebody without a key yet. A browser itself notes every 401 and 403."""
    came = Visitor(browser, keyed_server.url)
    yield came
    came.close()
    noted = "console: Failed to load resource: the server responded with a status of 40"
    assert [problem for problem in came.problems if not problem.startswith(noted)] == []


def enter(page: Page, key: str) -> None:
    page.locator("input[type=password]").fill(key)
    page.get_by_role("button", name="Use this key").click()


def test_a_wrong_key_is_told_and_a_right_one_opens(guest: Visitor) -> None:
    page = guest.page
    page.get_by_text("This server asks for an API key.").wait_for()
    page.get_by_text("An API key is needed.").wait_for()
    page.get_by_text("gone when the tab is closed").wait_for()
    enter(page, "wrong")
    page.get_by_text("The API key is wrong.").wait_for()
    enter(page, USER)
    page.get_by_text("This server asks for an API key.").wait_for(state="detached")
    assert guest.ask("What is 3 + 4?") == "3 + 4 = 7"
    kept = "[sessionStorage.getItem('bushel.key'), localStorage.getItem('bushel.key')]"
    assert page.evaluate(kept) == [USER, None]
    guest.view("Connect")
    assert USER not in page.locator("main").inner_text()
    assert "YOUR_KEY" in page.locator("main").inner_text()


def test_operators_load_pin_and_unload_models(guest: Visitor) -> None:
    page = guest.page
    enter(page, OPERATOR)
    guest.view("Models")
    page.get_by_role("button", name="Load two").click()
    page.get_by_role("button", name="Unload two").wait_for()
    page.get_by_role("button", name="Pin two", exact=True).click()
    page.get_by_role("button", name="Unpin two").wait_for()
    page.get_by_role("button", name="Unload two").click()
    page.get_by_text("The model is pinned; unpin it first.").wait_for()
    page.get_by_role("button", name="Unpin two").click()
    page.get_by_role("button", name="Pin two", exact=True).wait_for()
    page.get_by_role("button", name="Unload two").click()
    page.get_by_role("button", name="Load two").wait_for()


def test_others_are_told_that_they_may_not(guest: Visitor) -> None:
    enter(guest.page, USER)
    guest.view("Models")
    guest.page.get_by_role("button", name="Load two").click()
    guest.page.get_by_role("alert").filter(has_text="needs an operator's").wait_for()
    guest.view("Live")
    guest.page.get_by_text("Reading the log affects all API keys").wait_for()
