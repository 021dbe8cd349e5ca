"""What happens on the server is seen while it happens."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import PLAIN
from tests.browser.visitor import LONG, Visitor
from tests.server.server_process import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_another_tabs_request_is_seen_and_cancelled(visitor: Visitor) -> None:
    visitor.view("Live")
    visitor.page.get_by_text("Nothing is running").wait_for()
    watching, visitor.page = visitor.page, visitor.tab()
    visitor.set(JSON_schema=LONG)
    visitor.write("hi")
    visitor.replies.last.locator(".prose").wait_for()

    watching.bring_to_front()
    row = watching.get_by_role("row").filter(has_text="writes")
    row.wait_for()
    assert "chat · bushel:tiny" in row.inner_text()
    assert row.get_by_role("img", name="prompt tokens").is_visible()
    row.get_by_role("button", name="Cancel request").click()
    watching.get_by_text("Nothing is running").wait_for()
    watching.get_by_role("group", name="Finished requests").wait_for()
    visitor.page.bring_to_front()
    visitor.replies.last.get_by_role("alert").wait_for()


def test_figures_memory_reuse_and_the_log_are_shown(visitor: Visitor) -> None:
    visitor.ask("What is 3 + 4?")
    visitor.view("Live")
    page = visitor.page
    for title in ("Written", "Read", "First token", "Gap between tokens"):
        page.get_by_role("img", name=title).wait_for()
    assert "Weights" in page.get_by_role("region", name="Engine of bushel:tiny").inner_text()
    reuse = page.get_by_role("region", name="Reuse of prompts").inner_text()
    assert "prompt tokens were not computed again" in reuse
    page.get_by_role("log").get_by_text("Listening on").first.wait_for()


def test_an_engine_that_dies_and_a_server_that_goes_are_told(browser: Browser) -> None:
    with serving(*PLAIN) as server:
        visitor = Visitor(browser, server.url)
        visitor.ask("What is 3 + 4?")
        visitor.view("Live")
        os.kill(server.status()["engine"]["pid"], signal.SIGKILL)
        visitor.page.get_by_text("The engine was replaced.").wait_for()
        visitor.page.get_by_text("Server ready").wait_for()
        visitor.page.get_by_role("link", name="What is 3 + 4?").click()
        assert visitor.ask("What is 2 + 3?") == "2 + 3 = 5"
        server.stop()
        visitor.page.get_by_text("The server does not answer.").first.wait_for()
        visitor.write("What is 3 + 4?")
        visitor.replies.last.get_by_role("alert").wait_for()
        visitor.close()
