"""Emphasis and code inside of a line of markdown, read word by word as a reply comes."""

from __future__ import annotations

from collections.abc import Iterator

from bushel.commands.terminal.terminal_text import BOLD, CYAN, ITALIC, STRUCK

_DOUBLE = {"**": BOLD, "__": BOLD, "~~": STRUCK}
_SINGLE = {"*": ITALIC, "_": ITALIC}


class InlineMarkdown:
    """What is switched on where the last word ended. A line's end switches all of it off."""

    def __init__(self) -> None:
        self._on: list[str] = []
        self._code = 0  # backticks that began it
        self._before = ""  # the last character of a word that goes on

    def reset(self) -> None:
        self._on, self._code, self._before = [], 0, ""

    def words(self, word: str, goes_on: bool = False) -> Iterator[tuple[str, tuple[str, ...]]]:
        """(text, its codes) of a word without its marks. goes_on: it is the beginning of one."""
        text, at = "", 0
        while at < len(word):
            mark = self._mark(word, at)
            if mark is None:
                at += word[at] == "\\" and not self._code and word[at + 1 : at + 2] in _ESCAPED
                text += word[at]
                at += 1
                continue
            if text:
                yield text, self._codes()
            text, at = "", at + len(mark)
            self._switch(mark)
        self._before = word[-1:] if goes_on else ""
        if text:
            yield text, self._codes()

    def _codes(self) -> tuple[str, ...]:
        codes = dict.fromkeys((_DOUBLE | _SINGLE)[mark] for mark in self._on)
        return (*codes, CYAN) if self._code else tuple(codes)

    def _switch(self, mark: str) -> None:
        if mark[0] == "`":
            self._code = 0 if self._code else len(mark)
        elif mark in self._on:
            self._on.remove(mark)
        else:
            self._on.append(mark)

    def _mark(self, word: str, at: int) -> str | None:
        """The one that begins here, if it begins or ends something."""
        char = word[at]
        if char == "`":
            ticks = len(word[at:]) - len(word[at:].lstrip("`"))
            return "`" * ticks if not self._code or self._code == ticks else None
        before = word[at - 1] if at else self._before
        if self._code or before == "\\":
            return None
        for mark in (word[at : at + 2], char):
            if mark in _DOUBLE or mark in _SINGLE:
                after = word[at + len(mark) :][:1]
                if mark in self._on:
                    ends = bool(before) and (char != "_" or not after.isalnum())
                    return mark if ends or (before and mark in _DOUBLE) else None
                if after and after not in "*_~" and not before.isalnum():
                    return mark
        return None


_ESCAPED = frozenset("\\`*_{}[]()#+-.!~|<>$")
_MARKS = frozenset("\\`*_~")


def cut_of(word: str) -> int:
    """Where a word may be cut before its end is known: beside no mark. 0: nowhere."""
    places = range(len(word) - 1, 0, -1)
    return next((at for at in places if not _MARKS & {word[at - 1], word[at]}), 0)
