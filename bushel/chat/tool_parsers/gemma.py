"""Gemma 4 and FunctionGemma: objects whose keys are bare, with a marker for quotes.

<|tool_call>call:read{path:<|"|>a.txt<|"|>,lines:[1,2],deep:{on:true}}<tool_call|>
<start_function_call>call:read{path:<escape>a.txt<escape>}<end_function_call>
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, ClassVar

from bushel.chat.reply.argument_values import as_json, escaped, parameter
from bushel.chat.tool_parsers.pairs import Pairs
from bushel.chat.tool_parsers.parse import NoCall
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat

_DEEPEST = 64  # levels; a reply that repeats itself may nest without end
Schema = Mapping[str, Any] | None


class GemmaSection(Pairs):
    def __init__(self, markers: tuple[str, str, str], start: str, offered: Offered, first: int):
        self.call, self.call_end, self.quote = markers
        super().__init__(start, offered, first)

    def read(self) -> Generator[None]:
        marker = self.call
        while marker:
            if marker == self.call:
                yield from self.meet("call:")
                name, _ = yield from self.until("{")
                self.name(name)
                self.begin()
                yield from self._object(self.offered.get(self._named), 0)
                self.whole = True
                self.end()
            else:
                self.settle()
            marker = yield from self.maybe(self.call_end, self.call)

    def _value(self, schema: Schema, depth: int) -> Generator[None]:
        if depth > _DEEPEST:
            raise NoCall
        mark = yield from self.peek()
        if (yield from self.maybe(self.quote)):
            yield from self.words(schema, self.quote, text=True)
        elif mark == '"':
            yield from self.value(self.part)
        elif (yield from self.maybe("{")):
            yield from self._object(schema, depth)
        elif (yield from self.maybe("[")):
            yield from self._array(schema, depth)
        else:
            words, end = yield from self.until(",", "}", "]")
            self.back(end)
            self.part("null" if words.strip() == "None" else as_json(words, schema))

    def _object(self, schema: Schema, depth: int) -> Generator[None]:
        """From behind its brace."""
        self.part("{")
        if (yield from self.maybe("}")):
            self.part("}")
            return
        end = ","
        while end == ",":
            key = yield from self._key()
            self.part(f'"{escaped(key)}": ')
            yield from self._value(parameter(schema, key), depth + 1)
            end = yield from self.meet(",", "}")
            self.part("}" if end == "}" else ", ")

    def _key(self) -> Generator[None, None, str]:
        if (yield from self.maybe(self.quote)):
            key, _ = yield from self.until(self.quote)
            yield from self.meet(":")
            return key
        key, _ = yield from self.until(":")
        return key.strip().strip('"')

    def _array(self, schema: Schema, depth: int) -> Generator[None]:
        items = schema.get("items") if schema else None
        below = items if isinstance(items, Mapping) else None
        self.part("[")
        if (yield from self.maybe("]")):
            self.part("]")
            return
        end = ","
        while end == ",":
            yield from self._value(below, depth + 1)
            end = yield from self.meet(",", "]")
            self.part("]" if end == "]" else ", ")


class Gemma(ToolFormat):
    name = "gemma"
    starts = ("<|tool_call>",)
    signs = ("<|tool_call>",)
    markup: ClassVar[tuple[str, ...]] = ("<tool_call|>", '<|"|>')
    markers: ClassVar[tuple[str, str, str]] = ("<|tool_call>", "<tool_call|>", '<|"|>')

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return GemmaSection(self.markers, start, offered, first)


class FunctionGemma(Gemma):
    name = "function_gemma"
    starts = ("<start_function_call>",)
    signs = ("<start_function_call>",)
    markup = ("<end_function_call>", "<escape>")
    markers = ("<start_function_call>", "<end_function_call>", "<escape>")
