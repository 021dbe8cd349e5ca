"""What a person does in the chat, done by a script in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import PLAIN
from tests.browser.visitor import LONG, Visitor, png
from tests.drawings import see
from tests.server.server_process import serving
from tools.tiny.ask import WEATHER

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

HOSTILE = (
    "<script>document.title='hurt'</script><img src=x onerror=\"document.title='hurt'\">"
    "<iframe src=https://example.com></iframe> [x](javascript:document.title='hurt') "
    "![y](https://example.com/y.png) <b>bold</b> **strong**"
)


def test_a_question_is_answered_with_its_figures(visitor: Visitor) -> None:
    assert visitor.ask("What is 3 + 4?") == "3 + 4 = 7"
    figures = visitor.replies.last.locator(".figures")
    figures.locator("summary").click()
    text = figures.inner_text()
    for words in ("8 tokens", "first after", "of them cached", "the model was done"):
        assert words in text


@pytest.mark.parametrize("way", ["paste", "drop", "file"])
def test_a_picture_is_seen(visitor: Visitor, way: str) -> None:
    picture = png(see("circle", "red") if way == "paste" else see("square", "blue"))
    if way == "file":
        file = {"name": "picture.png", "mimeType": "image/png", "buffer": picture}
        visitor.page.locator("input[type=file][aria-label=Pictures]").set_input_files([file])
        visitor.page.get_by_alt_text("Picture 1 to send").wait_for()
    else:
        visitor.give(way, picture, "textarea" if way == "paste" else "main")
    colour = "red" if way == "paste" else "blue"
    assert colour in visitor.ask("What colour is it?")
    assert visitor.page.get_by_alt_text("Picture 1 that you sent").is_visible()


def test_a_reply_can_be_stopped(visitor: Visitor) -> None:
    visitor.set(JSON_schema=LONG)
    visitor.write("hi")
    visitor.replies.last.locator(".prose").wait_for()
    visitor.page.get_by_role("button", name="Stop").click()
    visitor.page.get_by_text("You stopped this reply.").wait_for()
    assert visitor.page.get_by_role("button", name="Send", exact=True).is_visible()
    status = visitor.page.request.get(f"{visitor.url}/v1/status").json()
    assert status["running"] == 0


def test_retrying_and_editing_make_versions_and_lose_none(visitor: Visitor) -> None:
    visitor.ask("What is 3 + 4?")
    visitor.replies.last.get_by_role("button", name="Retry").click()
    visitor.page.get_by_label("Version 2 of 2").wait_for()
    visitor.replies.last.get_by_role("button", name="Retry").wait_for()
    assert visitor.reply() == "3 + 4 = 7"

    asked = visitor.page.get_by_role("article", name="You")
    asked.last.hover()
    asked.last.get_by_role("button", name="Edit message").click()
    visitor.page.get_by_label("Edit your message").fill("What is 2 + 3?")
    visitor.page.keyboard.press("Enter")
    visitor.replies.last.get_by_text("2 + 3 = 5").wait_for()
    asked.last.get_by_role("button", name="Previous version").click()
    visitor.page.get_by_text("3 + 4 = 7").wait_for()
    assert visitor.replies.last.get_by_label("Version 2 of 2").is_visible()


def test_thoughts_are_folded(visitor: Visitor) -> None:
    visitor.set(Thinking="on", Temperature="0")
    assert visitor.ask("What is 3 + 4?") == "3 + 4 = 7"
    thoughts = visitor.replies.last.locator("details.thoughts")
    assert not thoughts.locator(".prose").is_visible()
    thoughts.locator("summary").click()
    assert thoughts.locator(".prose").inner_text() == "3 + 4 is 7."


def test_a_tool_call_is_shown_and_can_be_answered(visitor: Visitor) -> None:
    visitor.set(Tools=json.dumps([WEATHER]), Temperature="0")
    visitor.write("What is the weather in Paris?")
    call = visitor.page.get_by_role("region", name="Tool call get_weather")
    call.get_by_label("Result of get_weather").fill("sunny, 21 degrees")
    assert '"city": "Paris"' in call.inner_text()
    call.get_by_role("button", name="Send result").click()
    visitor.page.get_by_role("article", name="Tool result").wait_for()
    visitor.replies.nth(1).get_by_role("button", name="Retry").wait_for()
    assert "sunny" in visitor.reply()


def test_the_system_prompt_is_known(visitor: Visitor) -> None:
    visitor.set(System_prompt="The codeword is marmalade.", Temperature="0")
    assert "marmalade" in visitor.ask("What is the codeword?")


def test_html_and_scripts_in_a_reply_stay_text(visitor: Visitor) -> None:
    """Whatever a model writes is text. B76."""
    visitor.set(JSON_schema=json.dumps({"const": HOSTILE}))
    text = visitor.ask("hi")
    for shown in ("<script>", "<img src=x", "<iframe", "javascript:", "<b>bold</b>"):
        assert shown in text
    reply = visitor.replies.last.locator(".prose")
    assert reply.locator("script, img, iframe, b").count() == 0
    assert reply.locator("strong").inner_text() == "strong"  # control: markdown is read
    addresses = [link.get_attribute("href") for link in reply.locator("a").all()]
    assert addresses == ["https://example.com/y.png"]  # which nobody asked for
    assert visitor.page.title() == "Bushel"


def test_a_schema_that_cannot_be_read_is_told_before_anything_is_sent(visitor: Visitor) -> None:
    visitor.set(JSON_schema="{")
    visitor.write("hi")
    visitor.page.get_by_text("The JSON schema is not valid JSON").first.wait_for()


def test_chats_are_kept_listed_exported_and_deleted(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    visitor.ask("What is 3 + 4?")
    page.get_by_role("link", name="New chat").first.click()
    page.get_by_role("heading", name="What can I do for you?").wait_for()
    visitor.ask("What is 2 + 3?")
    page.reload()
    page.get_by_role("link", name="What is 3 + 4?").click()
    page.get_by_text("3 + 4 = 7").wait_for()

    page.get_by_label("Export this chat").click()
    with page.expect_download() as coming:
        page.get_by_role("button", name="Export with all versions").click()
    coming.value.save_as(tmp_path / "chat.json")
    exported = json.loads((tmp_path / "chat.json").read_text())
    assert [turn["role"] for turn in exported["conversation"]["turns"]] == ["user", "assistant"]

    entry = page.get_by_role("listitem").filter(has_text="What is 3 + 4?")
    entry.hover()
    entry.get_by_role("button").click()
    page.get_by_text("Chat deleted.").first.wait_for()
    assert page.get_by_role("link", name="What is 3 + 4?").count() == 0
    page.locator("input[aria-label='File of a chat']").set_input_files(tmp_path / "chat.json")
    page.get_by_text("3 + 4 = 7").wait_for()


@pytest.mark.parametrize(
    "turns",
    [
        [{"id": "a", "parent": "b", "role": "user", "text": ""}],
        [{"id": "a", "parent": None, "role": "user", "text": 5}],
        [{"id": "a", "parent": None, "role": "system", "text": ""}],
        [None],
        "all",
    ],
)
def test_a_file_that_is_no_chat_is_refused(visitor: Visitor, turns: object) -> None:
    written = json.dumps({"bushel": 1, "conversation": {"turns": turns}}).encode()
    file = {"name": "chat.json", "mimeType": "application/json", "buffer": written}
    visitor.page.locator("input[aria-label='File of a chat']").set_input_files([file])
    visitor.page.get_by_text("This file is no chat of this page.").wait_for()


def test_a_request_can_be_copied_and_run_elsewhere(visitor: Visitor) -> None:
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.set(System_prompt="It's brief.", Temperature="0", Top_k="3")
    visitor.ask("What is 3 + 4?")
    for form, run in (("curl", ["sh", "-c"]), ("Python", [sys.executable, "-c"])):
        visitor.page.get_by_label("More about this reply").last.click()
        visitor.page.get_by_role("button", name=f"Copy request as {form}").click()
        visitor.page.get_by_text("Copied.").first.wait_for()
        text = visitor.page.evaluate("navigator.clipboard.readText()")
        made = subprocess.run([*run, text], capture_output=True, text=True, timeout=90)
        assert "3 + 4 = 7" in made.stdout, made.stderr


def test_the_page_works_below_a_path(browser: Browser, empty_home: dict[str, str]) -> None:
    """As behind a proxy that has other servers beside this one; without the slash, too."""
    with serving(*PLAIN, "--root-path", "/llm", env=empty_home) as server:
        came = Visitor(browser, f"{server.url}/llm")
        assert came.page.url.startswith(f"{server.url}/llm/#/chat/")
        assert came.ask("What is 3 + 4?") == "3 + 4 = 7"
        came.view("Connect")
        assert came.page.get_by_text(f"{server.url}/llm/v1", exact=True).first.is_visible()
        came.view("API")
        came.page.get_by_text("/v1/chat/completions", exact=True).first.wait_for()
        assert came.page.url == f"{server.url}/llm/docs"
        came.view("Live")
        came.close()
        assert came.problems == []
