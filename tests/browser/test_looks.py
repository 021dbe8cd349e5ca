"""Every view in light and dark, on a desk and on a phone: accessible, whole, and as pictures.

`BUSHEL_TEST_SCREENSHOTS` names a folder for the pictures, from which the README shows some.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx
import pytest

from tests.browser.visitor import LONG, PATIENCE, Visitor, png
from tests.drawings import see
from tests.server.server_process import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[2] / "page" / "node_modules" / "axe-core" / "axe.min.js"
FOLDER = os.environ.get("BUSHEL_TEST_SCREENSHOTS")
SIZES = {"desktop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}
FOCUSED = "document.activeElement.ariaLabel ?? document.activeElement.innerText"
MARKDOWN = """Two numbers are added like this:

```python
def add(a: int, b: int) -> int:
    \"\"\"The sum.\"\"\"
    return a + b  # nothing more
```

1. It is **short**, and *plain*.
2. It has `two` arguments.

| a | b | sum |
|---|---|----:|
| 3 | 4 | 7 |

> Nothing here was run.
"""
# As an exported chat, since the small model writes no markdown.
CHAT = {
    "bushel": 1,
    "conversation": {
        "turns": [
            {"id": "a", "parent": None, "role": "user", "text": "How are two numbers added?"},
            {"id": "b", "parent": "a", "role": "assistant", "text": MARKDOWN, "thoughts": "Short."},
        ],
        "leaf": "b",
    },
}


def violations(visitor: Visitor) -> list[str]:
    """What axe finds: names of controls, contrast, roles, landmarks and the like."""
    visitor.page.evaluate(AXE.read_text())
    found: dict[str, Any] = visitor.page.evaluate("axe.run()")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def load(server: Server) -> list[Future[Any]]:
    """Four clients with replies that are longer than anyone waits for."""

    def ask(number: int) -> httpx.Response:
        form = {"name": "long", "schema": json.loads(LONG)}
        body = {
            "messages": [{"role": "user", "content": f"Remember the number {number}. " * 20}],
            "max_tokens": 8000,
            "response_format": {"type": "json_schema", "json_schema": form},
        }
        return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=PATIENCE)

    clients = ThreadPoolExecutor(4)
    return [clients.submit(ask, number) for number in range(4)]


def keep(visitor: Visitor, name: str) -> None:
    if FOLDER:
        Path(FOLDER).mkdir(parents=True, exist_ok=True)
        visitor.page.screenshot(path=Path(FOLDER) / f"{name}.png")


def go(visitor: Visitor, size: str, name: str) -> None:
    if size == "phone":
        visitor.page.get_by_role("button", name="Menu", exact=True).click()
    visitor.view(name)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible_and_fits(
    browser: Browser, open_server: Server, size: str, scheme: Literal["light", "dark"]
) -> None:
    if not AXE.exists():
        pytest.skip("axe is not here: make page")
    # axe is a script of nobody's, which the page's policy rightly refuses.
    options: dict[str, Any] = {"viewport": SIZES[size], "color_scheme": scheme, "bypass_csp": True}
    visitor = Visitor(browser, open_server.url, has_touch=size == "phone", **options)
    page = visitor.page
    # Animations stand still, so that colours are what they are.
    page.emulate_media(reduced_motion="reduce")
    found: dict[str, list[str]] = {}
    busy: list[Future[Any]] = []

    def look(name: str) -> None:
        keep(visitor, f"{name}-{scheme}-{size}")
        found[name] = violations(visitor)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} is {wide} pixels too wide"

    page.get_by_text("on this server").wait_for()
    page.get_by_text("Server ready").wait_for(state="attached")
    look("welcome")
    visitor.give("paste", png(see("circle", "red")), "textarea")
    visitor.ask("What colour is it?")
    visitor.ask("What is 3 + 4?")
    visitor.replies.last.locator(".figures summary").click()
    look("chat")
    file = {
        "name": "chat.json",
        "mimeType": "application/json",
        "buffer": json.dumps(CHAT).encode(),
    }
    page.locator("input[aria-label='File of a chat']").set_input_files([file])
    page.get_by_role("table").wait_for()
    look("markdown")
    page.get_by_role("button", name="Settings of this chat").click()
    look("settings")
    page.get_by_role("button", name="Close settings").click()
    for name in ("Live", "Models", "Connect", "API"):
        go(visitor, size, name)
        if name == "Live":
            page.get_by_role("log").get_by_text("Listening").first.wait_for()
            busy = load(open_server)
            page.get_by_role("row").filter(has_text="writes").first.wait_for()
            page.wait_for_timeout(6000)  # until there is something in the charts
        if name == "API":
            page.get_by_text("/v1/chat/completions").click()
            page.get_by_role("group", name="Fields").wait_for()
        look(name.lower())
        if name == "Live":
            for request in open_server.status()["requests"]:
                open_server.http.delete(f"/v1/requests/{request['id']}")
            assert [reply.result().status_code for reply in busy] == [409] * len(busy)
    visitor.close()
    assert sorted({problem for problems in found.values() for problem in problems}) == []
    assert visitor.problems == []


def test_control_axe_notices_a_control_without_a_name(
    browser: Browser, open_server: Server
) -> None:
    if not AXE.exists():
        pytest.skip("axe is not here: make page")
    visitor = Visitor(browser, open_server.url, bypass_csp=True)
    visitor.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert any(problem.startswith("button-name") for problem in violations(visitor))
    visitor.close()


def test_the_keyboard_alone_is_enough(visitor: Visitor) -> None:
    page = visitor.page
    page.locator("textarea:focus").wait_for()  # by itself
    page.keyboard.type("What is 3 + 4?")
    page.keyboard.press("Enter")
    visitor.replies.last.get_by_role("button", name="Retry").wait_for()
    page.reload()
    page.get_by_text("3 + 4 = 7").wait_for()
    page.locator("body").press("Tab")
    seen = set()
    for _ in range(40):
        seen.add(
            page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.innerText")
        )
        page.keyboard.press("Tab")
    assert {"Live", "Model", "Message", "Retry", "Edit message", "API key"} <= {
        str(name).strip() for name in seen
    }
