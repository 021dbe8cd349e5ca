"""What is found out about a tokenizer is found once, and belongs to its model alone."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bushel.chat.reply.format_detection import reply_format_of
from bushel.core.options import ChatOptions
from bushel.models import Preparer
from bushel.text import profile as profiles
from bushel.text.tokenizer import Tokenizer
from tests.chat.preparers import host
from tests.chat.templates import THINKING

HERMES = "{{ messages[-1].content }}{% if tools %}<tool_call>{% endif %}"


def ask(prepares: Preparer) -> tuple[Any, ...]:
    profile = prepares.profile
    formats = [reply_format_of(prepares, ChatOptions(tools=name)) for name in (None, "glm")]
    return profile.abilities, profile.thinks_by_default, profile.written_call, *formats


def test_nothing_is_tried_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[int] = []
    render = Tokenizer.render

    def counted(self: Tokenizer, *args: Any, **more: Any) -> str:
        rendered.append(1)
        return render(self, *args, **more)

    prepares = host(tmp_path / "a", THINKING)
    monkeypatch.setattr(Tokenizer, "render", counted)
    first = ask(prepares)
    assert rendered
    rendered.clear()
    assert ask(prepares) == first
    assert not rendered


def test_each_model_has_its_own(tmp_path: Path) -> None:
    one, two = host(tmp_path / "a", THINKING), host(tmp_path / "b", HERMES)
    assert one.profile.abilities.switch is not None
    assert two.profile.abilities.switch is None
    assert reply_format_of(one, ChatOptions()).thinking == "think"
    assert reply_format_of(two, ChatOptions()).tools == "hermes"
    assert one.profile.grammar_tokens is not two.profile.grammar_tokens


def test_threads_that_ask_at_once_wait_for_one_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, readings = profiles.read_grammar_tokens, []

    def slow(*args: Any) -> Any:
        readings.append(1)
        time.sleep(0.1)
        return read(*args)

    monkeypatch.setattr(profiles, "read_grammar_tokens", slow)
    profile = host(tmp_path / "a").profile
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(profile.grammar_tokens)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(readings) == 1
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
