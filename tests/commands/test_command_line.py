"""The command itself: help and version as words, and Ctrl-C from its first moment on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bushel.cli import main
from bushel.core.version import VERSION
from tests.depth import one_in

Capture = pytest.CaptureFixture[str]


def test_help_is_a_command_too(capfd: Capture) -> None:
    assert main(["help"]) == 0
    every = capfd.readouterr().out
    assert "COMMAND" in every
    assert main(["help", "serve"]) == 0
    assert "--max-model-len" in capfd.readouterr().out
    assert main(["help", "sevre"]) == 2
    assert "did you mean 'serve'?" in capfd.readouterr().err


def test_version_is_a_command_too(capfd: Capture) -> None:
    assert main(["version"]) == 0
    assert capfd.readouterr().out == f"bushel {VERSION}\n"


@pytest.mark.parametrize("command", ["run", "launch"])
def test_a_model_has_a_short_flag(command: str, capfd: Capture) -> None:
    assert main(["help", command]) == 0
    assert "-m" in capfd.readouterr().out


# Presses Ctrl-C when a module is looked for, and runs the command.
PROGRAM = """\
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)


class Watching:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Watching())
from bushel.cli import main

main(["version"])
"""


def interrupted(folder: Path, module: str, name: str = "bushel") -> tuple[int, str]:
    """The exit code, and what it says, of a program of that name."""
    program = folder / name
    program.write_text(PROGRAM.format(module=module))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module", one_in(3, ["bushel.core", "bushel.cli", "bushel.server.command.flags"])
)
def test_an_interrupt_while_the_command_is_imported_prints_nothing(
    tmp_path: Path, module: str
) -> None:
    assert interrupted(tmp_path, module) == (-signal.SIGINT, "")


def test_control_without_an_interrupt_it_runs(tmp_path: Path) -> None:
    assert interrupted(tmp_path, "never.imported") == (0, f"bushel {VERSION}\n")


def test_programs_that_import_bushel_hear_their_interrupts(tmp_path: Path) -> None:
    code, said = interrupted(tmp_path, "bushel.core", "somebody.py")
    assert code != 0
    assert "KeyboardInterrupt" in said
