"""Lines that are typed: several as one message, and what is kept of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bushel.commands.chat import line_editor
from bushel.commands.chat.line_editor import LineEditor
from tests.commands.terminals import Terminal, person

# Ctrl-C before the wait for a key does not end that wait, as one that another thread is given.
_UNHEARD = """\
import signal
import sys
import threading
import time
from pathlib import Path
from bushel.commands.chat.line_editor import LineEditor

def interrupt():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

editor = LineEditor(lambda _: (), Path(sys.argv[1]))
threading.Thread(target=interrupt, daemon=True).start()
try:
    editor.read()
except KeyboardInterrupt:
    print("heard")
print("read:", editor.read())
"""


def typing(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    typed: Iterator[str] = iter(lines)
    monkeypatch.setattr("builtins.input", lambda _: next(typed))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("one line",), "one line"),
        (("one \\", "two\\", "three"), "one \ntwo\nthree"),
        (("a path ends with \\\\",), "a path ends with \\\\"),
        (('"""all of it"""',), "all of it"),
        (('"""', "one", "", '  two"""'), "one\n\n  two"),
    ],
)
@pytest.mark.parametrize("edits", [True, False])
def test_several_lines_are_one_message(
    lines: tuple[str, ...],
    message: str,
    edits: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_editor, "_EDITS", edits)  # also in a Python without readline
    typing(monkeypatch, *lines)
    assert LineEditor(lambda _: (), tmp_path / "history").read() == message


def test_the_history_is_bounded_and_has_nothing_twice_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "history"
    typing(monkeypatch, "one", "one", " hidden", "two", "one")
    editor = LineEditor(lambda _: (), path)
    for _ in range(5):
        editor.read()
    assert path.read_text().splitlines() == ["one", "two", "one"]
    path.write_text("".join(f"{number}\n" for number in range(5000)))
    LineEditor(lambda _: (), path)
    assert path.read_text().splitlines()[-1] == "4999"
    assert len(path.read_text().splitlines()) == 1000


def test_a_history_that_cannot_be_written_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    typing(monkeypatch, "one")
    assert LineEditor(lambda _: (), tmp_path / "file" / "history").read() == "one"


def test_ctrl_c_between_the_prompt_and_the_wait_for_a_key_is_heard(tmp_path: Path) -> None:
    """What is typed slowly is read whole. B81."""
    history = str(tmp_path / "history")
    with Terminal(history, env=person(tmp_path), program=("-c", _UNHEARD)) as terminal:
        terminal.prompt()
        terminal.wait_for("heard")
        terminal.prompt()
        for key in "slow":
            terminal.type(key)
            time.sleep(2 * line_editor._TICK)
        terminal.type("\r")
        terminal.wait_for("read: slow")
        assert terminal.end() == 0
