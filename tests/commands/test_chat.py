"""`bushel chat` on a real terminal, with a real server."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.conftest import KEY
from tests.commands.terminals import CTRL_C, CTRL_D, TAB, UP, Terminal, person
from tests.drawings import see
from tests.server.server_process import FEW, Server, serving, until

FIGURES = r"\d+ tokens.* · first after [\d.]+ s"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def chat(server: Server, home: Path) -> Iterator[Terminal]:
    env = person(home, BUSHEL_URL=server.url, BUSHEL_API_KEY=KEY)
    with Terminal("chat", "--temperature", "0", env=env, cwd=str(home)) as terminal:
        terminal.wait_for(f"bushel:tiny, at {server.url}")
        terminal.prompt()
        yield terminal


def asked(terminal: Terminal, line: str, answer: str) -> None:
    terminal.say(line)
    terminal.wait_for(answer)
    terminal.wait_for(FIGURES)
    terminal.prompt()


def done(terminal: Terminal, line: str, shown: str) -> None:
    terminal.say(line)
    terminal.wait_for(shown)
    terminal.prompt()


def test_questions_are_answered_with_what_they_cost(chat: Terminal) -> None:
    asked(chat, "What is 3 + 4?", r"3 \+ 4 = 7")
    asked(chat, "What is 5 + 4?", r"5 \+ 4 = 9")
    assert re.search(r"\d+ of \d+ cached", chat.text)  # the first question was there already
    chat.type(CTRL_D)
    assert chat.end() == 0


@pytest.mark.long
def test_a_picture_is_seen_wherever_its_path_stands(chat: Terminal, home: Path) -> None:
    (home / "my pictures").mkdir()
    see("circle", "red").save(home / "my pictures" / "one.png")
    see("square", "blue").save(home / "two.png")
    see("triangle", "green").save(home / "three.png")
    see("star", "black").save(home / "four.png")
    # Dragged here with its spaces escaped; in quotes; alone before the question; by a command.
    asked(chat, f"What shape is this? {home}/my\\ pictures/one.png", "circle")
    asked(chat, "What shape is this? 'two.png'", "square")
    done(chat, f"file://{home}/three.png", "three.png goes with your question")
    asked(chat, "What shape is this?", "triangle")
    done(chat, "/image four.png", "four.png goes with your question")
    asked(chat, "What shape is this?", "star")
    done(chat, "/image nothing.png", "nothing.png cannot be read")


def test_commands_change_what_is_said(chat: Terminal, home: Path) -> None:
    done(chat, "/help", "/thoughts")
    asked(chat, "What is 3 + 4?", "7")
    done(chat, "/stats", r"context: [\d,]+ of 65,536 tokens")
    done(chat, "/model", r"\* bushel:tiny")
    asked(chat, "/retry", "7")
    asked(chat, "What is 1 + 1?", "2")
    done(chat, "/undo", "Forgotten: What is 1")
    done(chat, "/system Be brief.", "System: Be brief.")
    done(chat, "/set top_p 0.5", "From the next reply on")
    done(chat, "/set top_p 7", "top_p must be between 0 and 1")
    done(chat, "/set topp 7", "did you mean 'top_p'")
    done(chat, "/savee it", "did you mean 'save'")
    done(chat, "/save it", r"Saved in it\.json")
    saved = json.loads((home / "it.json").read_text())
    assert [message["role"] for message in saved["messages"]] == ["system", "user", "assistant"]
    assert saved["messages"][1]["content"] == "What is 3 + 4?"
    assert (saved["temperature"], saved["top_p"]) == (0, 0.5)
    done(chat, "/clear", "A new conversation")
    done(chat, "/undo", "Nothing has been said")
    done(chat, "/load it.json", "1 question")
    done(chat, "/save it.json", "Saved in")
    (home / "other.json").write_text("{}")
    done(chat, "/save other.json", "is there already")
    done(chat, "/load other.json", "holds no conversation")
    done(chat, "/model no/such", "no/such")
    chat.say("/quit")  # which is /exit in other chats
    assert chat.end() == 0


def test_several_lines_are_one_question(chat: Terminal) -> None:
    chat.say('"""What is')
    chat.wait_for(r"\.\.\. $")
    asked(chat, '3 + 4?"""', r"7")
    chat.say("What is \\")
    chat.wait_for(r"\.\.\. $")
    asked(chat, "5 + 4?", "9")
    done(chat, "/save lines", "Saved")
    done(chat, "/undo", "Forgotten: What is $|Forgotten: What is\\s")


def test_what_was_typed_is_there_the_next_day(server: Server, home: Path) -> None:
    env = person(home, BUSHEL_URL=server.url, BUSHEL_API_KEY=KEY)
    with Terminal("chat", env=env) as first:
        first.prompt()
        done(first, "/system Only today", "System")
        first.say(" /stats")  # with a space before it: not kept
        first.prompt()
        first.type(CTRL_D)
        assert first.end() == 0
    with Terminal("chat", env=env) as second:
        second.prompt()
        second.type(UP)
        second.wait_for("/system Only today")
        second.type("\r")
        second.wait_for("System: Only today")
        second.prompt()
        second.type(f"/sys{TAB}")
        second.wait_for("/system")
    history = home / "state" / "bushel" / "chat_history"
    assert history.read_text().splitlines() == ["/system Only today"]
    assert history.stat().st_mode & 0o077 == 0


def test_ctrl_c_stops_the_reply_at_the_server_and_then_leaves(server: Server, home: Path) -> None:
    """What came of it stays in the conversation. B81."""
    env = person(home, BUSHEL_URL=server.url, BUSHEL_API_KEY=KEY)
    endless = ("--temperature", "100", "--max-tokens", "60000", "--seed", "1")
    with Terminal("chat", *endless, env=env) as chat:
        chat.prompt()
        chat.say("Talk.")
        chat.wait_for(r"\w{30}")
        until(lambda: server.status()["requests"], "it runs")
        [running] = server.status()["requests"]
        chat.type(CTRL_C)
        chat.wait_for(r"\(stopped\)")
        chat.prompt()
        until(lambda: not server.status()["requests"], "it is stopped")
        [ended] = [one for one in server.status()["recent"] if one["id"] == running["id"]]
        assert ended["status"] == 499
        assert ended["completion_tokens"] < 60000
        done(chat, "/set temperature 0", "From the next")
        chat.type(CTRL_C)
        chat.wait_for("once more")
        chat.prompt()
        chat.type(CTRL_C)
        assert chat.end() == 0


@pytest.mark.long
def test_a_server_that_dies_in_the_middle_of_a_reply_costs_a_line(home: Path) -> None:
    """Its engine, and then all of it. B81."""
    with serving(*FEW) as server:
        env = person(home, BUSHEL_URL=server.url)
        endless = ("--temperature", "100", "--max-tokens", "60000", "--seed", "1")
        with Terminal("chat", *endless, env=env) as chat:
            chat.prompt()
            chat.say("Talk.")
            chat.wait_for(r"\w{30}")
            # Its engine first: the server itself says so, and serves again.
            os.kill(server.status()["engine"]["pid"], 9)
            chat.wait_for(r"\(/retry asks again\)")
            chat.prompt()
            until(lambda: server.health() == 200, "it serves again")
            chat.say("/retry")
            chat.wait_for(r"\w{30}")
            server.process.kill()
            chat.wait_for(r"\(/retry asks again\)")
            chat.prompt()
            chat.say("Are you there?")
            chat.wait_for(r"does not answer.*\(/retry asks again\)")
            chat.prompt()
            assert "Traceback" not in chat.text
            chat.type(CTRL_D)
            assert chat.end() == 0


def test_without_a_terminal_it_answers_once(server: Server, home: Path) -> None:
    import subprocess
    import sys

    said = subprocess.run(
        [sys.executable, "-m", "bushel", "chat", "--temperature", "0"],
        input="What is 3 + 4?",
        env=person(home, BUSHEL_URL=server.url, BUSHEL_API_KEY=KEY),
        capture_output=True,
        text=True,
    )
    assert (said.returncode, said.stdout) == (0, "3 + 4 = 7\n")
