"""Lines that a person types: edited with arrow keys, kept from day to day, or several at once.

Apple's Python has libedit in the place of GNU's readline. Its file of history has another form and
its keys other names, so the file is ours: a line each, the oldest first.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

try:
    import readline

    _EDITS = True
except ImportError:  # a Python that was built without: no history, and no keys but the terminal's
    _EDITS = False

_MOST = 1000  # lines that are kept
_QUOTES = '"""'
FIRST, NEXT = ">>> ", "... "
_TICK = 0.25  # seconds

# Words that may follow what was typed so far.
Completer = Callable[[str], Sequence[str]]


def history_file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "bushel" / "chat_history"


def typed_line(prompt: str) -> str:
    """EOFError and KeyboardInterrupt are the person's. For the main thread."""
    with _interrupts_heard():
        return input(prompt)


@contextlib.contextmanager
def _interrupts_heard() -> Iterator[None]:
    """Python hears Ctrl-C when it ends the wait for a key. Between the prompt and that wait it
    would be heard at the next key only, so the wait is ended from time to time.
    """
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class LineEditor:
    """complete: words for the line so far, its last word cut off; paths are added by themselves."""

    def __init__(self, complete: Completer, path: Path | None = None):
        self._path = path or history_file()
        self._complete = complete
        self._words: list[str] = []
        if not _EDITS:
            return
        readline.set_auto_history(False)
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._completion)
        apple = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if apple else "tab: complete")
        readline.clear_history()
        for line in self._kept():
            readline.add_history(line)

    def read(self) -> str:
        '''A message: a line, several that each end with a backslash, or all between two """.
        EOFError and KeyboardInterrupt are the person's.
        '''
        line = self._line(FIRST)
        if line.lstrip().startswith(_QUOTES):
            text = line.lstrip().removeprefix(_QUOTES)
            while not text.rstrip().endswith(_QUOTES):
                text += "\n" + self._line(NEXT)
            return text.rstrip().removesuffix(_QUOTES).strip("\n")
        while line.endswith("\\") and not line.endswith("\\\\"):
            line = line[:-1] + "\n" + self._line(NEXT)
        return line

    def _line(self, prompt: str) -> str:
        line = typed_line(prompt)
        # As in shells: what begins with a space is not kept.
        if _EDITS and line.strip() and not line.startswith(" "):
            for each in line.splitlines():
                self._keep(each)
        return line

    # -- history ---------------------------------------------------------------------------

    def _kept(self) -> list[str]:
        try:
            lines = self._path.read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        if len(lines) > 2 * _MOST:
            with contextlib.suppress(OSError):
                self._path.write_text("\n".join(lines[-_MOST:]) + "\n", "utf-8")
        return lines[-_MOST:]

    def _keep(self, line: str) -> None:
        last = readline.get_current_history_length()
        if last and readline.get_history_item(last) == line:
            return
        readline.add_history(line)
        with contextlib.suppress(OSError):  # it is a comfort, and no more
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            descriptor = os.open(self._path, flags, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as file:
                file.write(line + "\n")

    # -- completion ------------------------------------------------------------------------

    def _completion(self, text: str, number: int) -> str | None:
        if number == 0:
            before = readline.get_line_buffer()[: readline.get_begidx()]
            words = [word for word in self._complete(before) if word.startswith(text)]
            self._words = words or _paths(text)
        return self._words[number] if number < len(self._words) else None


def _paths(text: str) -> list[str]:
    if "/" not in text and "." not in text:
        return []
    found = glob.glob(glob.escape(os.path.expanduser(text)) + "*")
    return [f"{path}/" if os.path.isdir(path) else path for path in sorted(found)]
