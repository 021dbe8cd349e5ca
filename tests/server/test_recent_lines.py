"""Operators read the last lines of the log from elsewhere."""

from __future__ import annotations

import io
import logging

import pytest

from bushel.server.observability import log_queue, logs
from bushel.server.observability.recent_lines import RecentLines

from .scripted_service import Service, ask, options


def texts(lines: RecentLines, after: int) -> list[str]:
    return [line.text for line in lines.after(after)]


def test_the_last_lines_are_kept_and_numbered() -> None:
    lines = RecentLines(kept=3)
    for word in "abcde":
        lines.add("info", word)
    assert texts(lines, 0) == ["c", "d", "e"]
    assert texts(lines, 4) == ["e"]
    assert texts(lines, 5) == []
    assert texts(lines, 900) == ["c", "d", "e"]  # of a server before this one


def test_a_long_line_is_cut() -> None:
    lines = RecentLines()
    lines.add("error", "x" * 100_000)
    assert len(lines.after(0)[0].text) < 3000


def test_operators_see_it_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = log_queue.LogQueue(io.StringIO())
    monkeypatch.setattr(logs, "_queue", queue)
    for number, text in enumerate(("first", "second")):
        queue.emit(logging.LogRecord("bushel", logging.INFO + 10 * number, "", 0, text, (), None))
    keys = options(api_keys=("user",), operator_keys=("operator",))
    reply = ask(Service(options=keys), "GET", "/v1/log", headers={"x-api-key": "operator"}).json()
    assert [line["text"] for line in reply["lines"]] == ["first", "second"]
    assert [line["level"] for line in reply["lines"]] == ["info", "warning"]
    assert reply["last"] == 2
    later = ask(Service(options=keys), "GET", "/v1/log?after=1", headers={"x-api-key": "operator"})
    assert [line["number"] for line in later.json()["lines"]] == [2]
    refused = ask(Service(options=keys), "GET", "/v1/log", headers={"x-api-key": "user"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "operator_only")
    assert ask(Service(options=keys), "GET", "/v1/log").status_code == 401
    assert ask(Service(), "GET", "/v1/log?after=-1").status_code == 400
