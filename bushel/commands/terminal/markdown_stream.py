"""Markdown on a terminal, written as it comes: nothing that was written is written again.

So nothing flickers, scrolls away twice, or is spoilt when the window changes. A word waits for its
end, so that it is not cut at the border; a table for its last row, so that its columns stand below
each other; the beginning of a line for the character that says what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bushel.commands.terminal.inline_markdown import InlineMarkdown, cut_of
from bushel.commands.terminal.markdown_table import table_lines
from bushel.commands.terminal.terminal_text import BOLD, CYAN, DIM, Ink, printable, width

# What may still become a heading, a list, a quote, a rule, a fence or a table.
_UNDECIDED = re.compile(r"[ \t]*(?:#{1,6}|[-*+]|(?:\*|-|_){2,}|\d{1,3}[.)]?|>|`{1,2}|~{1,2})?[ ]?")
_HEADING = re.compile(r"[ ]{0,3}(#{1,6})[ ]+")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,3}[.)])[ ]+")
_QUOTE = re.compile(r"[ ]{0,3}>[ ]?")
_FENCE = re.compile(r"[ ]*(`{3,}|~{3,})")
_RULE = re.compile(r"[ ]{0,3}([-*_])(?:[ ]*\1){2,}[ ]*")
_ROW = re.compile(r"[ ]{0,3}\|")
_PIECES = re.compile(r"[ \t]+|[^ \t]+")


class MarkdownStream:
    """write: takes what is shown; columns: how wide it may be just now. Without colours the text is
    shown as it was written, marks and all.
    """

    def __init__(self, write: Callable[[str], None], ink: Ink, columns: Callable[[], int]):
        self._write, self._ink, self._columns = write, ink, columns
        self._inline = InlineMarkdown()
        self._line = ""  # of this line, what has not been looked at yet
        self._decided = False  # what kind of line this is
        self._fence = ""  # what ends the code that we are in
        self._rows: list[str] = []  # of a table
        self._codes: tuple[str, ...] = ()  # of all of this line
        self._indent = self._column = 0
        self._spaces = ""

    def feed(self, text: str) -> None:
        text = printable(text)
        if not self._ink.on:
            self._write(text)
            return
        head, *rest = text.split("\n")
        self._take(head)
        for part in rest:
            self._end_line()
            self._take(part)

    def finish(self) -> None:
        """Of a reply that ended here, in the middle of a line perhaps."""
        if not self._ink.on:
            return
        if self._line or self._column or self._rows:
            self._end_line(last=True)
        self._flush_table()
        self._fence = ""

    # -- lines -----------------------------------------------------------------------------

    def _take(self, text: str) -> None:
        self._line += text
        if not self._decided and self._line and not self._waits(self._line):
            self._decide()
        if self._decided:
            self._words()

    def _waits(self, line: str) -> bool:
        """Whether more has to be seen of it first: all of it, of fences, rules and tables."""
        if self._fence:
            return not line.strip() or line.lstrip()[0] in "`~"
        whole = _FENCE.match(line) or _ROW.match(line) or _RULE.fullmatch(line)
        return bool(whole or _UNDECIDED.fullmatch(line))

    def _end_line(self, last: bool = False) -> None:
        if not self._decided:
            if self._row_of_table():
                return
            self._decide()
        self._words(whole=True)
        if not (last and not self._column):
            self._write("\n")
        self._decided, self._codes = False, ()
        self._indent = self._column = 0
        self._spaces = self._line = ""
        self._inline.reset()

    def _decide(self) -> None:
        self._flush_table()
        self._decided = True
        if self._fence:
            line = self._line.strip()
            if len(line) >= len(self._fence) and not line.strip(self._fence[0]):
                self._fence, self._codes = "", (DIM,)
            return
        if found := _FENCE.match(self._line):
            self._fence, self._codes = found[1], (DIM,)
            self._emit(self._line.strip(), self._codes)
            self._line = ""
        elif _RULE.fullmatch(self._line):
            self._emit("─" * min(40, self._columns() - 1), (DIM,))
            self._line = ""
        elif found := _HEADING.match(self._line):
            self._codes, self._line = (BOLD,), self._line[found.end() :]
        elif found := _QUOTE.match(self._line):
            self._begin("│ ", (DIM,), found.end())
        elif found := _ITEM.match(self._line):
            sign = found[2] if found[2][0].isdigit() else "•"
            self._begin(f"{found[1].expandtabs(4)}{sign} ", (), found.end())
        else:
            spaces = len(self._line) - len(self._line.lstrip(" "))
            self._begin(" " * spaces, (), spaces)

    def _begin(self, sign: str, codes: tuple[str, ...], taken: int) -> None:
        self._emit(sign, codes)
        self._indent, self._line = self._column, self._line[taken:]

    # -- words -----------------------------------------------------------------------------

    def _words(self, whole: bool = False) -> None:
        if self._fence or self._codes == (DIM,):
            self._emit(self._line, self._codes or (CYAN,))
            self._line = ""
            return
        *pieces, last = _PIECES.findall(self._line) or [""]
        done = whole or last.isspace() or (last != "" and width(last[-1]) == 2)
        for piece in (*pieces, last) if done else pieces:
            if piece.isspace():
                self._spaces = piece
            else:
                self._styled(piece)
        self._line = "" if done else last
        if not done and width(last) >= self._columns() - self._indent:  # it fits into no line
            cut = cut_of(last)
            self._styled(last[:cut], goes_on=True)
            self._line = last[cut:]

    def _styled(self, piece: str, goes_on: bool = False) -> None:
        for text, codes in self._inline.words(piece, goes_on):
            self._place(text, (*self._codes, *codes))

    def _place(self, word: str, codes: tuple[str, ...]) -> None:
        """A word, or a piece of one, on this line or on the next."""
        most, size = self._columns(), width(word)
        if self._column + len(self._spaces) + size > most and size != len(word) > 1:
            for char in word:  # of a script without spaces, which may be cut anywhere
                self._place(char, codes)
            return
        if self._spaces:
            if self._column + len(self._spaces) + size <= most:
                self._emit(self._spaces, ())
            else:
                self._wrap()
        elif size != len(word) and self._column + size > most:
            self._wrap()
        self._spaces = ""
        self._emit(word, codes)

    def _wrap(self) -> None:
        self._write("\n" + " " * self._indent)
        self._column = self._indent

    def _emit(self, text: str, codes: tuple[str, ...]) -> None:
        self._write(self._ink.paint(text, *codes))
        self._column += width(text)
        if self._column > self._columns():  # the terminal has broken it
            self._column %= self._columns()

    # -- tables ----------------------------------------------------------------------------

    def _row_of_table(self) -> bool:
        """Whether this line is one, and waits for the others."""
        if self._fence or not _ROW.match(self._line):
            return False
        self._rows.append(self._line)
        self._line = ""
        return True

    def _flush_table(self) -> None:
        rows, self._rows = self._rows, []
        for line in table_lines(rows, self._ink, self._columns()) if rows else ():
            self._write(f"{line}\n")
