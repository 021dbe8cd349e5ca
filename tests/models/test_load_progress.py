"""Loading shows bytes, once; a model that cannot fit is refused before its weights are read."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from bushel import LLM, ModelError
from bushel.cli import main
from bushel.core.load_progress import LoadProgress
from bushel.core.terminal_line import CLEAR, TerminalLine
from bushel.models import load
from tests.families import checkpoint_dir
from tests.server.models.test_loading import enormous
from tests.server.server_process import FEW, PATIENCE, free_port

load_module = sys.modules[load.__module__]


# -- bytes -----------------------------------------------------------------------------------


def test_bytes_are_told_from_none_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(load_module, "_GROUP", 1)
    model = load(str(checkpoint_dir("qwen3_5")), loading=lambda *it: told.append(it))
    arrays = [weight for _, weight in tree_flatten(model.network.parameters())]
    total = sum(weight.nbytes for weight in arrays)
    done = [count for count, _ in told]
    assert {whole for _, whole in told} == {total}
    assert done == sorted(done)
    assert (done[0], done[-1], done.count(total)) == (0, total, 1)
    assert len(done) > 10
    model.close()


def test_weights_are_the_same_in_groups_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = []
    for group in (1, 10_000, 1 << 40):
        monkeypatch.setattr(load_module, "_GROUP", group)
        model = load(str(checkpoint_dir("qwen2_5_vl")))
        weights.append(tree_flatten(model.network.parameters()))
    for others in weights[1:]:
        for (name, one), (same, two) in zip(weights[0], others, strict=True):
            assert name == same
            assert mx.array_equal(one, two)


def told_of(seconds: float, *, shown: bool) -> tuple[list[str], list[str]]:
    """What a load of 8 GB that takes so long shows on a terminal, and writes to a log."""
    now = 0.0
    lines: list[str] = []
    log: list[str] = []
    progress = LoadProgress("m", lines.append, log.append, shown=shown, clock=lambda: now)
    for tenth in range(11):
        now = seconds * tenth / 10
        progress(tenth * 800_000_000, 8_000_000_000)
    return lines, log


def test_a_log_has_a_line_every_few_seconds_and_one_at_the_end() -> None:
    lines, log = told_of(21.0, shown=False)
    assert lines == [""]
    assert log == [
        "loading weights, 2.4 of 8.0 GB",
        "loading weights, 4.8 of 8.0 GB",
        "loading weights, 7.2 of 8.0 GB",
        "8.0 GB of weights loaded in 21.0 s",
    ]
    assert told_of(1.0, shown=False)[1] == ["8.0 GB of weights loaded in 1.0 s"]


def test_a_terminal_has_a_line_that_goes_away() -> None:
    lines, log = told_of(21.0, shown=True)
    assert lines[4] == "loading m  3.2 of 8.0 GB"
    assert lines[-1] == ""
    assert log == ["8.0 GB of weights loaded in 21.0 s"]


def test_nothing_is_shown_where_nobody_looks() -> None:
    stream = io.StringIO()
    line = TerminalLine(stream)
    line.show("loading")
    line.show("")
    assert not stream.getvalue()


# -- real processes on a terminal ------------------------------------------------------------


class Terminal:
    """A process whose output is a terminal, and what it has written there."""

    def __init__(self, *command: str, **environment: str):
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (40, 120))
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, **environment},
        )
        os.close(theirs)
        self.text = ""

    def pieces(self) -> Iterator[str]:
        """Until it ends."""
        while True:
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:  # nobody has the other end any more
                return
            if not data:
                return
            self.text += data.decode(errors="replace")
            yield self.text

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminals() -> Iterator[Any]:
    opened: list[Terminal] = []

    def make(*command: str, **environment: str) -> Terminal:
        opened.append(Terminal(*command, **environment))
        return opened[-1]

    yield make
    for terminal in opened:
        terminal.close()


@pytest.mark.long
def test_a_server_shows_the_load_once(terminals: Any, tmp_path: Path) -> None:
    """Of front, engine and worker only one does."""
    command = ("-m", "bushel", "serve", "bushel:tiny", *FEW, "--port", str(free_port()))
    terminal = terminals(*command, BUSHEL_RUNTIME_DIR=str(tmp_path))
    asked = False
    for text in terminal.pieces():
        if "http://" in text and not asked:
            terminal.process.send_signal(signal.SIGTERM)
            asked = True
    assert terminal.process.wait(PATIENCE) == 0
    assert terminal.text.count("loading bushel:tiny  0.0 of ") == 1
    assert terminal.text.count("of weights loaded in") == 1
    shown = terminal.text.index("loading bushel:tiny")
    assert CLEAR in terminal.text[shown : terminal.text.index("of weights loaded in")]


@pytest.mark.long
def test_a_check_shows_the_load_and_then_its_steps(terminals: Any) -> None:
    terminal = terminals("-m", "bushel", "check", str(checkpoint_dir("llama")))
    for _ in terminal.pieces():
        pass
    assert terminal.process.wait(PATIENCE) == 0
    shown = [line for line in re.split(r"\r\x1b\[K|\r?\n", terminal.text) if line]
    assert shown[0].startswith("loading llama  0.0 of ")
    steps = [line for line in shown if line.startswith("llama: ")]
    assert steps[0] == "llama: trying how rows share a batch"
    assert "llama: 8 lengths, chunk 512: rows together" in steps
    assert "llama: joins and leaves: each row alone" in steps
    assert len(steps) == len(set(steps))
    assert shown[-1].startswith("Equal to solo")


@pytest.mark.long
def test_a_script_shows_one_load_and_one_bar(terminals: Any) -> None:
    program = (
        "import bushel; llm = bushel.LLM('bushel:tiny');"
        "llm.generate(['a', 'b'], {'max_tokens': 2}, progress=True); llm.close()"
    )
    terminal = terminals("-c", program)
    for _ in terminal.pieces():
        pass
    assert terminal.process.wait(PATIENCE) == 0
    assert terminal.text.count("loading bushel:tiny  0.0 of ") == 1
    assert len(re.findall(r"100%\|.*2/2", terminal.text)) == 1


# -- what cannot fit -------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"memory_limit": 1 << 40}, {"dtype": "bfloat16"}])
def test_a_script_is_refused_a_model_that_cannot_fit(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """Nothing of its weights is there to be read."""
    with pytest.raises(ModelError, match=r"needs \d+\.\d\d GB for its weights alone"):
        LLM(str(enormous(tmp_path)), **options)


def test_check_refuses_a_model_that_cannot_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(enormous(tmp_path))]) == 2
    told = capsys.readouterr().err
    assert "needs 4398.05 GB for its weights alone" in told
    assert told.count("\n") == 1


def test_control_the_same_model_without_a_bound_is_tried(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load(str(enormous(tmp_path)))
    assert "weights alone" not in str(caught.value)


@pytest.mark.long
def test_a_server_of_one_model_refuses_one_that_cannot_fit(tmp_path: Path) -> None:
    command = ["-m", "bushel", "serve", str(enormous(tmp_path)), *FEW, "--port", str(free_port())]
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "BUSHEL_RUNTIME_DIR": str(tmp_path / "runtime")},
    )
    assert done.returncode == 2, done.stderr
    assert "needs 4398.05 GB for its weights alone" in done.stderr.splitlines()[-1]
    assert "loading weights" not in done.stderr
