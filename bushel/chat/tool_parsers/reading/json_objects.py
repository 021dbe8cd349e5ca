"""Calls as JSON objects, alone or in a list: `{"name": "read", "arguments": {"path": "a.txt"}}`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from bushel.chat.tool_parsers.reading.argument_values import JsonSpan, loaded
from bushel.chat.tool_parsers.reading.parser import NoCall, Parser
from bushel.chat.tool_parsers.tool_format import CallSection, Offered

_NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "parameters")


class Objects(Parser):
    """Reads objects, their members in any order.

    Arguments pass on as they are generated once the name is known, and wait for it before.
    """

    by_name = False  # {"read": {"path": "a.txt"}}
    _tool = ""  # the name that was read
    _waiting: str | None = None  # arguments that are complete, and not emitted yet
    _supplied = False  # arguments have come

    def objects(self) -> Generator[None]:
        """One call, several behind one another, or a list of them."""
        listed = yield from self.maybe("[")
        yield from self.meet("{")
        yield from self.object(bare=False)
        separators = (",", "]") if listed else (";",)
        while marker := (yield from self.maybe("{", *separators)):
            if marker == "{":
                yield from self.object(bare=False)
            elif marker == "]":
                self.settle()
                return

    def object(self, *, bare: bool) -> Generator[None]:
        """A call, from behind its brace.

        bare: nothing but the object says that it is a call, so that it is one only if it has
        both an offered name and arguments.
        """
        self._tool, self._waiting, self._supplied = "", None, False
        while True:
            char = yield from self.peek()
            if char == ",":
                self.take(1)
            elif char == '"':
                yield from self._member(bare)
            elif char == "}":
                self.take(1)
                break
            elif self.open and self.whole:
                break  # models forget the last brace, and have said all that matters
            else:
                raise NoCall
        self._conclude(bare)

    def _conclude(self, bare: bool) -> None:
        if not self.open:
            if bare or not self._tool:
                raise NoCall
            self._start()
        if not self._supplied:
            self.part("{}")
            self.whole = True
        self.end()

    def _member(self, bare: bool) -> Generator[None]:
        key = _value_of((yield from self.value(_later)))
        yield from self.meet(":")
        char = yield from self.peek()
        if key in _NAMES and not self._tool:
            name = _value_of((yield from self.value(_later)))
            if not isinstance(name, str) or (bare and name not in self.offered):
                raise NoCall
            self._tool = name
            if not bare or self._waiting is not None:
                self._start()
        elif key in _ARGUMENTS and not self._supplied:
            yield from self._arguments(char)
        elif self.by_name and not self._tool and isinstance(key, str):
            self._tool = key
            yield from self._arguments(char)
        else:
            yield from self.value(_later)

    def _start(self) -> None:
        self.name(self._tool)
        self.begin()
        self._release()

    def _release(self) -> None:
        if self._waiting is not None:
            self.part(self._waiting)
            self.whole = _is_object(self._waiting)
            self._waiting = None

    def _arguments(self, char: str) -> Generator[None]:
        self._supplied = True
        if char == "{" and self._tool:
            if not self.open:
                self._start()
            span = yield from self.value(self.part)
            self.whole = span.sound
            return
        span = yield from self.value(_later)
        value = _value_of(span)
        # Some models write the object as a string, and none at all as null.
        text = value if isinstance(value, str) else span.text
        self._waiting = "{}" if value in (None, "") else text
        if self.open:
            self._release()
        elif self._tool:
            self._start()


def _later(part: str) -> None:
    """The value is looked at when it is complete."""


def _value_of(span: JsonSpan) -> object:
    try:
        return span.value
    except ValueError:
        raise NoCall from None


def _is_object(text: str) -> bool:
    try:
        return isinstance(loaded(text), dict)
    except ValueError:
        return False


class ObjectsSection(Objects):
    def __init__(
        self, ends: tuple[str, ...], by_name: bool, start: str, offered: Offered, first: int
    ):
        self.ends, self.by_name = ends, by_name
        super().__init__(start, offered, first)

    def read(self) -> Generator[None]:
        yield from self.objects()
        yield from self.maybe(*self.ends)


def objects_section(
    ends: tuple[str, ...], *, by_name: bool = False
) -> Callable[[str, Offered, int], CallSection]:
    """Of a format whose objects stand between markers."""
    return partial(ObjectsSection, ends, by_name)
