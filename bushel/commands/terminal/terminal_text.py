"""What is written to a terminal: no control characters of others, how wide it is, and colours.

A model may write escape sequences, which a terminal would obey: they can retitle it, hide text, or
type. So whatever a model, a server or a file says goes through `printable` first.
"""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TextIO

from bushel.core.terminal_line import is_terminal

# Whole sequences of common kinds, so that no remains of them are seen; then any control character,
# the marks that turn the direction of text, and halves of characters, which cannot be encoded.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_=>])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
BOLD, DIM, ITALIC, STRUCK = "1", "2", "3", "9"
RED, GREEN, CYAN = "31", "32", "36"
_WEIGHTLESS = {"Mn", "Me", "Cf"}


def printable(text: str) -> str:
    """Without anything that a terminal obeys, but for ends of lines and tabs."""
    if text.isprintable():
        return text
    return _CONTROLS.sub("", _SEQUENCES.sub("", text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    return " ".join(printable(text).split())


def width(text: str) -> int:
    """Columns that it takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(char) in _WEIGHTLESS
        else 2
        if unicodedata.east_asian_width(char) in "WF"
        else 1
        for char in text
    )


class Ink:
    """Colours of a stream, if it is a terminal that wants them: https://no-color.org."""

    def __init__(self, stream: TextIO | None):
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.on = is_terminal(stream) and not plain

    def paint(self, text: str, *codes: str) -> str:
        """codes: of `Select Graphic Rendition`."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self.on and codes and text else text

    def bold(self, text: str) -> str:
        return self.paint(text, BOLD)

    def dim(self, text: str) -> str:
        return self.paint(text, DIM)

    def green(self, text: str) -> str:
        return self.paint(text, GREEN)

    def red(self, text: str) -> str:
        return self.paint(text, RED)


def clipped(text: str, columns: int, *, end: bool = False) -> str:
    """No wider than that: its beginning, or its end."""
    if width(text) <= columns:
        return text
    kept, room = [], columns - 1
    for char in reversed(text) if end else text:
        room -= width(char)
        if room < 0:
            break
        kept.append(char)
    return "…" + "".join(reversed(kept)) if end else "".join(kept) + "…"
