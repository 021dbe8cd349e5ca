"""Calls whose arguments come one by one, as a name and a text."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from bushel.chat.tool_parsers.reading.argument_values import (
    as_json,
    escaped,
    is_text,
    kinds,
    parameter,
)
from bushel.chat.tool_parsers.reading.parser import Parser


class Pairs(Parser):
    """Builds the JSON object: strings as they come, other values when they are complete."""

    _count = 0  # arguments of the open call
    _collected: list[str]

    def begin(self) -> None:
        super().begin()
        self._count = 0

    def argument(
        self, name: str, *ends: str, text: bool | None = None
    ) -> Generator[None, None, str]:
        """One argument, its value up to one of the ends, which is returned."""
        self.part(f'{", " if self._count else "{"}"{escaped(name)}": ')
        self._count += 1
        return self.words(parameter(self.offered.get(self._named), name), *ends, text=text)

    def words(
        self, schema: Mapping[str, Any] | None, *ends: str, text: bool | None = None
    ) -> Generator[None, None, str]:
        """A value that is written as plain text.

        text: whether the format says that it is a string, where it does.
        """
        if is_text(schema) if text is None else text and "string" in kinds(schema):
            self.part('"')
            end = yield from self.pour(lambda piece: self.part(escaped(piece)), *ends)
            self.part('"')
            return end
        self._collected = []
        end = yield from self.pour(self._collect, *ends)
        self.part(as_json("".join(self._collected), schema))
        return end

    def _collect(self, piece: str) -> None:
        self.settle()
        self._collected.append(piece)

    def close(self) -> None:
        """The last argument has come."""
        self.part("}" if self._count else "{}")
        self.whole = True
        self.end()
