"""What a chat makes of replies that a real model seldom gives: hostile, thoughtful, or endless."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bushel.core import CallBegin, CallEnd, CallPart, TextDelta, ThoughtDelta
from tests.commands.scripted_front import scripted_front
from tests.commands.terminals import CTRL_C, CTRL_D, Terminal, person
from tests.server.scripted_service import Service, Step, failing, said
from tests.server.server_process import until

# Retitle, clear, hide, move, paste, ask the terminal to answer, change its colours for good.
HOSTILE = (
    "\x1b]0;owned\x07", "\x1b[2J", "\x1b[8m", "\x1b[1;1H", "\x1b]52;c;cm0gLXJm\x07", "\x1b[c",
    "\x9b31m", "\x1bP+q\x1b\\", "\x08\x08\x08", "\x0e", "\rover", "\u202eright to left",
)  # fmt: skip
FORBIDDEN = (
    "\x1b]", "\x1bP", "\x1b[2J", "\x1b[8m", "\x1b[1;1H", "\x1b[c", "\x9b", "\x0e", "\x08", "\u202e",
)  # fmt: skip


def called(name: str, arguments: str) -> Step:
    parts = CallBegin(0, name), CallPart(0, arguments), CallEnd(0, complete=True)
    return [said("", deltas=parts)]


def thought(text: str) -> Step:
    return [said("", deltas=(ThoughtDelta(text),))]


@contextlib.contextmanager
def talking(
    home: Path, *steps: Step, columns: int = 100, **env: str
) -> Iterator[tuple[Terminal, Service]]:
    """A chat in which every question is answered with these steps."""
    with (
        scripted_front(*steps) as (url, service),
        Terminal("chat", "--url", url, env=person(home, **env), columns=columns) as chat,
    ):
        chat.prompt()
        yield chat, service


def test_escape_sequences_of_a_model_never_reach_the_terminal(tmp_path: Path) -> None:
    """In replies, thoughts and calls, whole and in pieces. B79."""
    parts = [said("safe so far ")]
    for sequence in HOSTILE:
        # Whole, and then each character as a piece of its own.
        parts += [said(f"[{sequence}] "), *(said(char) for char in sequence)]
    steps: list[Step] = [thought("hm \x1b]0;owned\x07"), *([part] for part in parts)]
    steps += [called("rm\x1b[2J", "{\x1b[2J}"), [said("the end\n", finish="stop")]]
    with talking(tmp_path, *steps) as (chat, _):
        before = len(chat.raw)
        chat.say("Hello")
        chat.wait_for("the end")
        chat.wait_for("first after")
        shown = chat.raw[before:]
    assert [sign for sign in FORBIDDEN if sign in shown] == []
    assert "safe so far" in chat.text


def test_control_the_sequences_are_sent(tmp_path: Path) -> None:
    with scripted_front([said("a\x1b[2Jb", finish="stop")]) as (url, _):
        command = [sys.executable, "-m", "bushel", "run", "Hello", "--url", url]
        told = subprocess.run(
            command, env=person(tmp_path), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    assert told.stdout == "a\x1b[2Jb\n"  # into a pipe goes what the model wrote


def test_thoughts_are_folded_and_calls_are_shown(tmp_path: Path) -> None:
    steps = (
        thought("First I look.\nThen "),
        thought("I think about it."),
        [said("", deltas=(TextDelta("**Done**, I say.\n"),))],
        called("weather", '{"town": "Rome"}'),
        [said("", finish="stop")],
    )
    with talking(tmp_path, *steps) as (chat, _):
        chat.say("Hello")
        chat.wait_for("thinking: First I look. Then I think about it.")
        chat.wait_for(r"thought for [\d.]+ s")
        chat.wait_for(r"Done, I say\.")
        chat.wait_for(r'calls weather \{"town": "Rome"\}')
        chat.prompt()
        assert "\x1b[1mDone" in chat.raw
        chat.say("/thoughts")
        chat.wait_for(r"First I look\.\nThen I think about it\.")


def test_no_colour_where_none_is_wanted(tmp_path: Path) -> None:
    reply = [said("# Head\n**bold** text\n", finish="stop")]
    with talking(tmp_path, reply, NO_COLOR="1") as (chat, _):
        chat.say("Hello")
        chat.wait_for(r"# Head\n\*\*bold\*\* text")
        chat.prompt()
        assert "\x1b[1m" not in chat.raw
        assert "\x1b[2m" not in chat.raw


def test_a_reply_follows_the_window(tmp_path: Path) -> None:
    with talking(tmp_path, [said("word " * 30 + "\n", finish="stop")], columns=40) as (chat, _):
        for columns in (40, 25):
            chat.resize(columns)
            chat.say("Hello")
            chat.wait_for("word")
            chat.wait_for("first after")
            chat.prompt()
            lines = [line for line in chat.text.splitlines() if line.startswith("word")]
            assert max(map(len, lines[-3:])) <= columns
            assert len(lines[-2]) > columns - 10


def test_what_fails_or_is_stopped_leaves_the_chat_alive(tmp_path: Path) -> None:
    never = asyncio.Event()
    with talking(tmp_path, never, [said("late", finish="stop")]) as (chat, service):
        chat.say("Hello")
        until(lambda: service.tickets, "it is asked")
        chat.type(CTRL_C)  # before its first token
        chat.wait_for(r"\(stopped\)")
        chat.prompt()
        until(lambda: service.tickets[0].left, "the server knows")
        service.script = lambda job: failing(429, "busy")
        chat.say("/retry")
        chat.wait_for(r"It went wrong\. \(/retry asks again\)")
        chat.prompt()
        service.script = lambda job: [[said("Here I am.\n", finish="stop")]]
        chat.say("/retry")
        chat.wait_for(r"Here I am\.")
        chat.prompt()
        messages = service.jobs[-1].request["messages"]
        assert len(messages) == 1, messages  # what failed is no part of the conversation
        chat.type(CTRL_D)
        assert chat.end() == 0
