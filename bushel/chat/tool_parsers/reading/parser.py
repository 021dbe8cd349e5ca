"""Sections written as straight code: a generator that yields wherever more text is needed.

    call = yield from self.meet(CALL)           # reads a marker
    name, _ = yield from self.until(SEPARATOR)  # reads up to a marker
    self.name(name)
    yield from self.arguments(END)              # reads and emits
    self.end()

What is read gathers as `raw` until it is known to be a call's, which drops it, or to be text,
which says it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from typing import ClassVar

from bushel.chat.tool_parsers.reading.argument_values import JsonSpan
from bushel.chat.tool_parsers.reading.marker_search import first, held
from bushel.chat.tool_parsers.tool_format import CallSection, Offered
from bushel.core.delta import CallBegin, CallEnd, CallPart, Delta, TextDelta

# Names of tools are far shorter; what is longer than this is prose behind a stray marker.
_LONGEST_NAME = 256


class NoCall(Exception):
    """The text is not what the format writes."""


class Parser(CallSection):
    """A section whose `read` is a generator. It goes the same way for calls that were not
    offered; these are said as text instead."""

    def __init__(self, start: str, offered: Offered, first: int):
        super().__init__(start, offered, first)
        self.text = ""  # fed, and not read yet
        self.raw = [start]  # read, and not settled yet
        self.refused = True  # what is settled is text
        self.open = False  # a call has begun and not ended
        self.whole = False  # the open call's arguments are complete and valid
        self._named = ""  # a call that has its name and no more
        self._out: list[Delta] = []
        self._reading = self.read()
        next(self._reading)

    @abstractmethod
    def read(self) -> Generator[None]:
        """Reads the section from behind its start marker. It is over when this returns."""

    def feed(self, text: str) -> list[Delta]:
        self.text += text
        try:
            next(self._reading)
        except StopIteration:
            self._close()
        except NoCall:
            self._give_up()
        return self._given()

    def finish(self) -> list[Delta]:
        self._reading.close()
        if not self.open and self._named in self.offered:
            self.begin()
        if self.open and not self.refused:
            self.text = ""  # at most the beginning of a marker
            self.end()
        elif self.refused or "".join(self.raw).strip():
            self.take(len(self.text))
            self._say()
        self.done, self.text = True, ""
        return self._given()

    def _close(self) -> None:
        self.settle()
        self.done, self.rest, self.text = True, self.text, ""

    def _give_up(self) -> None:
        if self.open and not self.refused:
            unread, self.raw = self.raw, []
            self.end()
            self.raw = unread
        self._say()
        self._close()

    def _given(self) -> list[Delta]:
        given, self._out = self._out, []
        return given

    def _say(self) -> None:
        text, self.raw = "".join(self.raw), []
        if text:
            self._out.append(TextDelta(text))

    # -- what is emitted --

    def settle(self) -> None:
        """What was read so far belongs to the last call that was named."""
        if self.refused:
            self._say()
        self.raw = []

    def name(self, name: str) -> None:
        """The next call's name. It begins with its arguments, or with the end of the reply."""
        self._named = name.strip()

    def begin(self) -> None:
        self.refused = self._named not in self.offered
        self.open, self.whole = True, False
        self.settle()
        if not self.refused:
            self._out.append(CallBegin(self.index, self._named))

    def part(self, fragment: str) -> None:
        self.settle()
        if fragment and not self.refused:
            self._out.append(CallPart(self.index, fragment))

    def end(self) -> None:
        self.settle()
        if not self.refused:
            self._out.append(CallEnd(self.index, self.whole))
            self.index += 1
        self.open, self._named = False, ""

    # -- what is read --

    def take(self, size: int) -> str:
        taken, self.text = self.text[:size], self.text[size:]
        self.raw.append(taken)
        return taken

    def back(self, marker: str) -> None:
        """Unreads a marker that was just read."""
        self.raw.pop()
        self.text = marker + self.text

    def maybe(self, *markers: str) -> Generator[None, None, str]:
        """The marker that comes next, behind white space; "" if it is none, and nothing is read.

        No marker may begin with another one.
        """
        while True:
            words = self.text.lstrip()
            for marker in markers:
                if words.startswith(marker):
                    self.take(len(self.text) - len(words) + len(marker))
                    return marker
            if not any(marker.startswith(words) for marker in markers):
                return ""
            yield

    def meet(self, *markers: str) -> Generator[None, None, str]:
        """The marker that comes next, behind white space."""
        marker = yield from self.maybe(*markers)
        if not marker:
            raise NoCall
        return marker

    def peek(self) -> Generator[None, None, str]:
        """The next character that is not white space, which is read."""
        while not self.text.lstrip():
            self.take(len(self.text))
            yield
        self.take(len(self.text) - len(self.text.lstrip()))
        return self.text[0]

    def until(self, *markers: str) -> Generator[None, None, tuple[str, str]]:
        """A name and the marker behind it."""
        while True:
            at, marker = first(self.text, markers)
            if marker:
                before = self.take(at)
                self.take(len(marker))
                return before, marker
            if len(self.text) > _LONGEST_NAME:
                raise NoCall
            yield

    def pour(self, sink: Callable[[str], None], *markers: str) -> Generator[None, None, str]:
        """Passes text on as it comes, up to a marker, which is read and returned."""
        while True:
            at, marker = first(self.text, markers)
            if marker:
                sink(self.take(at))
                self.take(len(marker))
                return marker
            sink(self.take(len(self.text) - held(self.text, markers)))
            yield

    def value(self, sink: Callable[[str], None], *stops: str) -> Generator[None, None, JsonSpan]:
        """Passes one JSON value on as it comes. One that is not closed ends before a stop that is
        not in a string."""
        span = JsonSpan()
        while True:
            at, stop = first(self.text, stops)
            self._pass_on(span, sink, at if stop else len(self.text) - held(self.text, stops))
            if span.inside:
                self._pass_on(span, sink, len(stop or self.text))
            elif stop or span.done:
                return span
            if not stop:
                yield

    def _pass_on(self, span: JsonSpan, sink: Callable[[str], None], size: int) -> None:
        if size:
            text = self.take(size)
            part, rest = span.feed(text)
            if rest:
                self.raw[-1] = text[: -len(rest)]
                self.text = rest + self.text
            sink(part)

    def arguments(self, *ends: str) -> Generator[None]:
        """The named call's JSON object, up to the end behind it; nothing at all is an empty one."""
        if (yield from self.peek()) == "{":
            self.begin()
            span = yield from self.value(self.part, *ends)
            self.whole = span.sound
        else:
            yield from self.meet(*ends)
            self.text = self.raw.pop() + self.text
            self.begin()
            self.part("{}")
            self.whole = True


class Listed(Parser):
    """Calls one after another, with or without markers around all of them."""

    calls: ClassVar[str]
    calls_end: ClassVar[str]
    call: ClassVar[str]
    between: ClassVar[tuple[str, ...]]  # what may stand behind a call

    def read(self) -> Generator[None]:
        if self.start == self.calls:
            yield from self.meet(self.call)
        marker = self.call
        while marker not in ("", self.calls_end):
            if marker == self.call:
                yield from self.one()
            else:
                self.settle()
            marker = yield from self.maybe(*self.between, self.call, self.calls_end)

    @abstractmethod
    def one(self) -> Generator[None]:
        """Reads a call from behind its marker."""
