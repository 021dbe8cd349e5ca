"""How a reply is shown while it comes: thoughts in one line that is written over, then its text."""

from __future__ import annotations

import shutil
import sys

from bushel.commands.reply_stream import PartKind, StreamedReply
from bushel.commands.terminal.markdown_stream import MarkdownStream
from bushel.commands.terminal.terminal_text import Ink, clipped, one_line, printable, width
from bushel.core.terminal_line import CLEAR

_TAIL = 400  # characters of thoughts that may fit into a line


class ReplyView:
    """Of one reply. All that it says has been made harmless for a terminal."""

    def __init__(self, reply: StreamedReply, ink: Ink):
        self._reply, self._ink = reply, ink
        self._text = MarkdownStream(_write, ink, lambda: shutil.get_terminal_size().columns)
        self._kind: PartKind | None = None
        self._over = False  # a line is there that is written over
        self._empty = True  # no text has been shown

    def wait(self, text: str) -> None:
        """Until something comes."""
        self._show_over(text, "")

    def show(self, kind: PartKind, part: str) -> None:
        # A call is its name and then its arguments, on a line of its own.
        if kind == "call" or (kind != self._kind and kind != "arguments"):
            self._leave()
            self._kind = kind
        if kind == "thought":
            self._show_over("thinking: ", self._reply.thoughts[-_TAIL:])
        elif kind == "text":
            self._text.feed(part.lstrip("\n") if self._empty else part)
            self._empty = self._empty and not part.strip("\n")
        else:
            words = f"calls {one_line(part)} " if kind == "call" else printable(part)
            _write(self._ink.dim(words))

    def end(self, stopped: bool = False) -> None:
        self._leave()
        self._kind = None
        if stopped:
            _write(self._ink.dim("(stopped)\n"))

    def _leave(self) -> None:
        """What was shown last is whole."""
        if self._over:
            _write(CLEAR)
            self._over = False
        if self._kind == "thought":
            seconds = self._reply.thinking_seconds
            _write(self._ink.dim(f"thought for {seconds:.1f} s (/thoughts shows them)\n"))
        elif self._kind == "text":
            self._text.finish()
            if not self._ink.on and not self._reply.text.endswith("\n"):
                _write("\n")
        elif self._kind == "call":
            _write("\n")

    def _show_over(self, text: str, tail: str) -> None:
        """tail: of which the end is shown, as much as there is room for."""
        room = shutil.get_terminal_size().columns - 1 - width(text)
        _write(CLEAR + self._ink.dim(text + clipped(one_line(tail), max(room, 1), end=True)))
        self._over = True


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
