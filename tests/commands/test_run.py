"""`bushel run`: one answer for scripts and pipes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import KEY
from tests.commands.terminals import CTRL_C, Terminal, person
from tests.depth import one_in
from tests.drawings import see
from tests.server.server_process import Server, until

QUESTION = "What is 3 + 4?"


class Shell:
    def __init__(self, home: Path, server: Server):
        self.home, self.server = home, server
        self.env = person(home, BUSHEL_URL=server.url, BUSHEL_API_KEY=KEY)

    def __call__(
        self, *arguments: str, piped: str | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        given = {"stdin": subprocess.DEVNULL} if piped is None else {"input": piped}
        return subprocess.run(
            [sys.executable, "-m", "bushel", "run", *arguments],
            env={**self.env, **env},
            cwd=self.home,
            capture_output=True,
            text=True,
            **given,
        )


@pytest.fixture
def shell(server: Server, tmp_path: Path) -> Shell:
    return Shell(tmp_path, server)


def test_an_answer_and_nothing_else_goes_into_a_pipe(shell: Shell) -> None:
    told = shell("What", "is", "--temperature", "0", "3 + 4?")
    assert (told.returncode, told.stdout, told.stderr) == (0, "3 + 4 = 7\n", "")
    piped = shell("--temperature", "0", piped=QUESTION)
    assert (piped.returncode, piped.stdout) == (0, "3 + 4 = 7\n")


def test_what_is_piped_stands_below_the_prompt(shell: Shell) -> None:
    told = shell("What is", "--json", "--temperature", "0", piped="3 + 4?")
    whole = shell("What is\n\n3 + 4?", "--json", "--temperature", "0")
    counts = [json.loads(each.stdout)["usage"]["prompt_tokens"] for each in (told, whole)]
    assert counts[0] == counts[1]


@pytest.mark.long
def test_a_picture_is_seen(shell: Shell, tmp_path: Path) -> None:
    see("circle", "red").save(tmp_path / "one.png")
    told = shell("What shape is this?", "--image", "one.png", "--temperature", "0")
    assert "circle" in told.stdout
    named = shell("What shape is this? one.png", "--temperature", "0")
    assert named.stdout == told.stdout
    assert "one.png goes with your question" in named.stderr


def test_json_is_one_object_of_a_known_form(shell: Shell) -> None:
    told = json.loads(shell(QUESTION, "--json", "--temperature", "0").stdout)
    assert (told["text"], told["model"], told["finish_reason"]) == (
        "3 + 4 = 7",
        "bushel:tiny",
        "stop",
    )
    assert told["tool_calls"] == []
    assert told["reasoning"] is None
    assert told["usage"]["completion_tokens"] > 0
    assert set(told["timings"]) == {"first_token_seconds", "total_seconds", "tokens_per_second"}


def test_a_schema_is_followed(shell: Shell, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    (tmp_path / "sum.json").write_text(json.dumps({**schema, "additionalProperties": False}))
    told = shell(QUESTION, "--schema", "sum.json", "--temperature", "0", "--max-tokens", "60")
    assert list(json.loads(told.stdout)) == ["sum"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    one_in(
        2,
        [
            ((), 2, "nothing to ask"),
            (("x", "--image", "nothing.png"), 2, "nothing.png cannot be read"),
            (("x", "--schema", "nothing.json"), 2, "holds no JSON schema"),
            (("x", "--temperature", "hot"), 2, "temperature must be"),
            (("x", "--model", "no/such"), 2, "does not serve no/such, but bushel:tiny"),
            (("x", "--no-such-flag"), 2, "--no-such-flag"),
            (("x" * 2_000_000,), 1, ""),  # refused by the server
            (("x", "--url", "http://127.0.0.1:9"), 1, "does not answer"),
            (("x", "--api-key", "wrong"), 1, "wants a key"),
        ],
    ),
)
def test_what_goes_wrong_is_one_line_and_a_code(
    shell: Shell, arguments: tuple[str, ...], code: int, words: str
) -> None:
    long = len("".join(arguments)) > 100_000  # more than a command line holds
    told = shell(piped=arguments[0]) if long else shell(*arguments)
    assert (told.returncode, told.stdout) == (code, ""), told.stderr
    assert len(told.stderr.splitlines()) == 1, told.stderr
    assert told.stderr.startswith("bushel: ")
    assert words in told.stderr


def test_an_answer_that_breaks_off_is_a_failure(shell: Shell, tmp_path: Path) -> None:
    from tests.commands.scripted_front import scripted_front
    from tests.server.scripted_service import failing, said

    with scripted_front([said("Half an ")], failing(503, "engine_lost")) as (url, _):
        told = shell("Hello", BUSHEL_URL=url)
    assert (told.returncode, told.stdout) == (1, "Half an ")
    assert "It went wrong" in told.stderr


def test_ctrl_c_ends_it_and_the_request(shell: Shell, server: Server) -> None:
    endless = ("--temperature", "100", "--max-tokens", "60000", "--seed", "1")
    with Terminal("run", "Talk.", *endless, env=shell.env) as terminal:
        terminal.wait_for(r"\w{30}")
        terminal.type(CTRL_C)
        assert terminal.end() == -signal.SIGINT  # which shells call 130
    until(lambda: not server.status()["requests"], "stopped")


def test_a_reader_that_has_seen_enough_is_no_fault(shell: Shell) -> None:
    command = f"{sys.executable} -m bushel run Talk --temperature 100 --max-tokens 400 | head -c 5"
    told = subprocess.run(
        ["sh", "-c", command],
        env=shell.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert len(told.stdout) <= 5  # which may end inside a character
    assert b"Traceback" not in told.stderr
