"""`bushel completion`: the shells themselves are asked what they would complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bushel.cli import main
from tests.commands.terminals import person
from tests.depth import one_in
from tests.test_build_files import NEWER_BASH, newer

# What is typed, and words that must be among those offered, or must not.
CASES = (
    ("bushel ch", {"chat", "check"}, {"serve"}),
    ("bushel serve --kv-b", {"--kv-bits"}, {"--port"}),
    ("bushel serve --kv-bits ", {"8", "4"}, {"--port"}),
    ("bushel serve --dtype b", {"bfloat16"}, {"float32"}),
    ("bushel doctor --section sy", {"system"}, {"device"}),
    ("bushel chat bu", {"bushel:tiny"}, {"someone/small"}),
    ("bushel run --model some", {"someone/small"}, {"bushel:tiny"}),
    ("bushel run --schema ta", {"taken.json"}, {"bushel:tiny"}),
    ("bushel completion ", {"bash", "zsh", "fish"}, {"models"}),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a model and a file are, and a `bushel` on the path."""
    home = tmp_path_factory.mktemp("home")
    snapshot = home / "hub" / "hub" / "models--someone--small" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).write_text("{}")
    (home / "taken.json").write_text("{}")
    (home / "bin").mkdir()
    command = home / "bin" / "bushel"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bushel "$@"\n')
    command.chmod(0o755)
    return home


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def told(home: Path, *command: str) -> str:
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        command, cwd=home, env=person(home, PATH=path), capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout


def offered_by(shell: str, home: Path, typed: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} is here")
    file = home / f"completion.{shell}"
    file.write_text(script(shell, capsys))
    if shell == "bash":
        line = "COMP_LINE=$2 COMP_POINT=${#2}"
        asked = f'source "$1"; {line}; _bushel; printf "%s\\n" "${{COMPREPLY[@]}}"'
        return set(told(home, "bash", "-c", asked, "bash", str(file), typed).split())
    asked = "source $argv[1]; complete -C $argv[2]"
    lines = told(home, "fish", "--no-config", "-c", asked, str(file), typed).splitlines()
    return {line.split("\t")[0] for line in lines}


@pytest.mark.parametrize(("typed", "some", "none"), one_in(2, CASES))
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_what_a_shell_offers(
    shell: str,
    typed: str,
    some: set[str],
    none: set[str],
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = offered_by(shell, home, typed, capsys)
    assert some <= words
    assert not none & words


def test_bash_completes_behind_a_colon(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert offered_by("bash", home, "bushel chat bushel:t", capsys) == {"tiny"}


def test_the_script_for_bash_runs_in_that_of_a_mac(capsys: pytest.CaptureFixture[str]) -> None:
    assert newer(script("bash", capsys), NEWER_BASH) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_can_be_read(shell: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} is here")
    file = home / f"read.{shell}"
    file.write_text(script(shell, capsys))
    flag = "--no-execute" if shell == "fish" else "-n"
    assert told(home, shell, flag, str(file)) == ""


def test_zsh_knows_the_function(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh is here")
    file = home / "function.zsh"
    file.write_text(script("zsh", capsys))
    asked = 'autoload -Uz compinit; compinit -u -D; eval "$(cat $1)"; print $_comps[bushel]'
    assert told(home, "zsh", "-f", "-c", asked, "zsh", str(file)) == "_bushel\n"


def test_every_command_and_flag_of_the_help_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    for flag in ("--max-num-seqs", "--end-with-stdin", "--no-thinking", "--sleep", "--version"):
        assert flag in text
    assert "--disable-prefix-cache" not in text  # of other servers, and not shown in the help
