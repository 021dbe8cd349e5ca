"""Calls as Python writes them: `read(path="a.txt", lines=[1, 2])`."""

from __future__ import annotations

import re
from collections.abc import Generator

from bushel.chat.tool_parsers.reading.argument_values import (
    as_json,
    dumped,
    escaped,
    literal,
    parameter,
)
from bushel.chat.tool_parsers.reading.key_values import Pairs
from bushel.chat.tool_parsers.reading.parser import NoCall

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_KEY = re.compile(r"\s*([A-Za-z_]?\w*)\s*")
_BARE = re.compile(r"[\"'()\[\]{},]")
_PLAIN = re.compile(r"[^\\\"']*")


class Expressions(Pairs):
    """Each argument is emitted when it is complete: only then is a literal's value known."""

    def expression(self) -> Generator[None]:
        """A call with arguments by name; any other expression is no call."""
        while (head := _NAME.match(self.text)) and head.end() == len(self.text):
            yield
        if not head or self.text[head.end()] != "(":
            raise NoCall
        name, _ = yield from self.until("(")
        marker = yield from self.maybe(")")
        while marker != ")":
            key = yield from self._key()
            self._begun(name)
            self._emit(key, (yield from self._literal()))
            marker = yield from self.meet(",", ")")
            if marker == ",":
                marker = yield from self.maybe(")")
        self._begun(name)
        self.close()

    def _begun(self, name: str) -> None:
        if not self.open:
            self.name(name)
            self.begin()

    def _key(self) -> Generator[None, None, str]:
        """The name of an argument, and the sign behind it."""
        while (key := _KEY.match(self.text)) and key.end() == len(self.text):
            yield
        if not key or not key.group(1) or self.text[key.end()] != "=":
            raise NoCall
        self.take(key.end() + 1)
        return key.group(1)

    def _emit(self, key: str, words: str) -> None:
        try:
            value = dumped(literal(words))
        except ValueError:
            value = as_json(words, parameter(self.offered.get(self._named), key))
        self.part(f'{", " if self._count else "{"}"{escaped(key)}": {value}')
        self._count += 1

    def _literal(self) -> Generator[None, None, str]:
        """The text of a value, to the comma or parenthesis behind it."""
        scan = _Scan()
        while (end := scan.end(self.text)) is None:
            yield
        return self.take(end)


class _Scan:
    """Looks for the end of a literal in text that grows, and goes on where it stopped."""

    def __init__(self) -> None:
        self._at = 0
        self._depth = 0
        self._quote = ""  # of the string that it is in

    def end(self, text: str) -> int | None:
        while self._string(text) if self._quote else self._bare(text):
            if not self._quote and self._depth < 0:
                return self._at
        return None

    def _bare(self, text: str) -> bool:
        """Takes one mark outside of strings; False if there is none yet."""
        match = _BARE.search(text, self._at)
        self._at = match.start() if match else len(text)
        if not match:
            return False
        mark = match.group()
        if mark in "\"'":
            if _unsure(text, self._at, 3 * mark):
                return False
            self._quote = 3 * mark if text.startswith(3 * mark, self._at) else mark
            self._at += len(self._quote)
            return True
        self._depth += (mark in "([{") - (mark in ")]}") - (mark == "," and not self._depth)
        self._at += self._depth >= 0
        return True

    def _string(self, text: str) -> bool:
        """Takes what is inside a string up to the next mark, and that; False if more is needed."""
        self._at = _PLAIN.match(text, self._at).end()  # type: ignore[union-attr]
        if self._at == len(text) or _unsure(text, self._at, self._quote):
            return False
        if text[self._at] == "\\":
            if self._at + 1 == len(text):
                return False
            self._at += 2
        elif text.startswith(self._quote, self._at):
            self._at += len(self._quote)
            self._quote = ""
        else:
            self._at += 1
        return True


def _unsure(text: str, at: int, marker: str) -> bool:
    """Whether the marker may stand there once more text has come."""
    return len(text) - at < len(marker) and marker.startswith(text[at:])
