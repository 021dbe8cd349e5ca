"""Somebody in front of the page: what they do, and what they must never see."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

PATIENCE = 90_000  # milliseconds for anything that has to happen; far more than it takes
# A reply of this form is so long that it can be stopped, and watched from another tab.
LONG = '{"type": "string", "minLength": 20000}'


def png(image: Image.Image) -> bytes:
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


class Visitor:
    """`problems`: console errors, exceptions, and requests to another host."""

    def __init__(self, browser: Browser, url: str, **context: Any):
        self.url = url
        self.host = urlsplit(url).netloc
        self.problems: list[str] = []
        self.context: BrowserContext = browser.new_context(**context)
        self.context.set_default_timeout(PATIENCE)
        self.context.on("request", self._look_at)
        self.page = self.tab()

    def tab(self) -> Page:
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("console", self._hear)
        page.goto(self.url)
        page.locator("main").wait_for()
        return page

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _look_at(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self.host:
            self.problems.append(f"request to {request.url}")

    def close(self) -> None:
        self.context.close()

    # -- what they do ---------------------------------------------------------------------------

    def view(self, name: str) -> None:
        self.page.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()
        self.page.get_by_role("heading", name=name, level=1).wait_for()

    def write(self, text: str) -> None:
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.keyboard.press("Enter")

    def ask(self, text: str) -> str:
        """The reply, once it is complete."""
        before = self.replies.count()
        self.write(text)
        self.replies.nth(before).get_by_role("button", name="Retry").wait_for()
        return self.reply()

    @property
    def replies(self) -> Locator:
        return self.page.get_by_role("article", name="Reply")

    def reply(self) -> str:
        """The last one's text."""
        return self.replies.last.locator(":scope > .prose").inner_text()

    def set(self, **settings: str) -> None:
        """Fields of the chat's settings, by their labels with _ for spaces."""
        panel = self.page.get_by_role("complementary", name="Settings of this chat")
        if not panel.is_visible():
            self.page.get_by_role("button", name="Settings of this chat").click()
        for name, value in settings.items():
            field = panel.get_by_label(name.replace("_", " "), exact=False)
            if field.evaluate("field => field.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)
        panel.get_by_role("button", name="Close settings").click()

    def give(self, event: str, picture: bytes, target: str) -> None:
        """A picture by `paste` or `drop`."""
        self.page.locator(target).evaluate(
            """(target, [event, bytes]) => {
                const data = new DataTransfer();
                const options = {type: "image/png"};
                data.items.add(new File([new Uint8Array(bytes)], "picture.png", options));
                const more = {bubbles: true, cancelable: true};
                target.dispatchEvent(event === "paste"
                    ? new ClipboardEvent("paste", {clipboardData: data, ...more})
                    : new DragEvent("drop", {dataTransfer: data, ...more}));
            }""",
            [event, list(picture)],
        )
        self.page.get_by_alt_text("Picture 1 to send").wait_for()
