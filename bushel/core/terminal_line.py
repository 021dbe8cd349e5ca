"""One line of a terminal that is written over, for what goes on meanwhile."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

CLEAR = "\r\x1b[K"


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def fitted(text: str) -> str:
    """No longer than a line: what is broken over two cannot be written over."""
    return text[: shutil.get_terminal_size().columns - 1]


class TerminalLine:
    """Of stderr, or another stream; nothing is shown where that is no terminal."""

    def __init__(self, stream: TextIO | None = None):
        self._stream = stream or sys.stderr
        self._shown = False
        self.on = is_terminal(self._stream)

    def show(self, text: str) -> None:
        """Instead of what is there; an empty text leaves nothing."""
        if self.on and (text or self._shown):
            self._stream.write(CLEAR + fitted(text))
            self._stream.flush()
            self._shown = bool(text)
