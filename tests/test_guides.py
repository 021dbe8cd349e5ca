"""What guides and the README show can be done: commands parse, requests are answered."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bushel import BushelError, cli
from bushel.server.command.options_of_flags import options_of_flags
from bushel.server.command.settings import with_settings
from tests.depth import one_in
from tests.drawings import see
from tests.server.server_process import PATIENCE, Server, serving
from tools.reference import serve_parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"
# A request that is refused ends the script, and the commands around it do nothing.
PRELUDE = """set -euo pipefail
curl() { command curl --silent --show-error --fail-with-body "$@"; }
bushel() { :; }
"""


@cache
def blocks(name: str) -> tuple[tuple[str, str], ...]:
    """(language, text) of what is fenced on a page."""
    found = FENCE.findall((ROOT / name).read_text())
    return tuple((language, text) for language, text in found)


def shell(name: str) -> list[str]:
    return [text for language, text in blocks(name) if language == "sh"]


def commands() -> Iterator[tuple[str, list[str]]]:
    for name in NAMES:
        for text in shell(name):
            for line in text.replace("\\\n", " ").splitlines():
                if line == "bushel" or line.startswith("bushel "):
                    yield name, shlex.split(line, comments=True)


def requests() -> list[tuple[str, str]]:
    return [
        (name, text)
        for name in NAMES
        for text in shell(name)
        if re.search(r"^\s*curl ", text, re.MULTILINE)
    ]


def scripts() -> list[tuple[str, str]]:
    """Those that ask a server. What the README shows of `bushel.LLM` has a test of its own."""
    return [
        (name, text)
        for name in NAMES
        for language, text in blocks(name)
        if language == "python" and ADDRESS in text
    ]


def parsed(words: list[str]) -> None:
    """As far as the command goes before it loads or asks anything."""
    arguments = cli._parsed(words[1:])
    if words[1:2] == ["serve"]:
        options_of_flags(with_settings(arguments, serve_parser(), {}))


@pytest.mark.parametrize(
    ("name", "words"),
    one_in(2, list(commands())),
    ids=lambda it: " ".join(it) if isinstance(it, list) else "",
)
def test_a_command_that_is_shown_is_one(
    name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a home that has the files and folders which flags name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys.txt").write_text("alice\nbob\n")
    checkpoint = tmp_path / "models" / "one"
    shutil.copytree(ROOT / "bushel" / "tiny", checkpoint)
    (tmp_path / "Pictures").mkdir()
    named = {"~": str(tmp_path), "$OPERATOR_KEY": "operator"}
    for written, meant in named.items():
        words = [word.replace(written, meant) for word in words]
    parsed(words)


def test_control_a_flag_that_does_not_exist_is_seen() -> None:
    with pytest.raises(SystemExit):
        parsed(["bushel", "serve", "--frobnicate"])
    with pytest.raises(SystemExit):
        parsed(["bushel", "frobnicate"])
    with pytest.raises(BushelError):
        parsed(["bushel", "serve", "--allowed-media-domains", "example.org"])


def test_the_settings_that_are_shown_are_settings(tmp_path: Path) -> None:
    [text] = [text for language, text in blocks("docs/guides/operations.md") if language == "toml"]
    file = tmp_path / "bushel.toml"
    file.write_text(text.replace("/var/cache/bushel", str(tmp_path)))
    arguments = cli._parsed(["serve", "--config", str(file)])
    options, _ = options_of_flags(with_settings(arguments, serve_parser(), {}))
    assert options.engine.max_batch == 16
    file.write_text(f"{text}frobnicate = 3\n")
    with pytest.raises(BushelError, match="frobnicate"):
        with_settings(arguments, serve_parser(), {})


def test_every_guide_shows_something() -> None:
    shown = {name for name, _ in commands()} | {name for name, _ in requests()}
    without = set(NAMES) - shown
    assert without <= {"docs/guides/macos.md"}
    assert len(requests()) > 10


# -- what is asked of a server ----------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    models = ("bushel:tiny", "eyes=bushel:tiny")
    with serving("--pin", "bushel:tiny", "--workers", "1", model=models) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    see("circle", "red").save(tmp_path / "picture.png")
    return tmp_path


def run(command: list[str], server: Server, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [word.replace(ADDRESS, server.url) for word in command],
        cwd=folder,
        env={**os.environ, "BUSHEL_API_KEY": "any"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize(("name", "text"), one_in(3, requests()))
def test_a_request_that_is_shown_is_answered(
    name: str, text: str, server: Server, folder: Path
) -> None:
    done = run(["bash", "-c", PRELUDE + text], server, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


@pytest.mark.parametrize(("name", "text"), one_in(4, scripts()))
def test_a_script_that_is_shown_runs(name: str, text: str, server: Server, folder: Path) -> None:
    done = run([sys.executable, "-c", text], server, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_control_a_request_that_is_refused_is_seen(server: Server, folder: Path) -> None:
    body = '{"messages": [{"role": "user", "content": "Hello"}], "temperature": "hot"}'
    asked = f"curl {ADDRESS}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"
    done = run(["bash", "-c", f"{PRELUDE}{asked}\necho fine"], server, folder)
    assert done.returncode != 0
    assert "fine" not in done.stdout
