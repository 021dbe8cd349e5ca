"""Gemma 4 and FunctionGemma: objects whose keys are bare, with a marker for quotes.

<|tool_call>call:read{path:<|"|>a.txt<|"|>,lines:[1,2],deep:{on:true}}<tool_call|>
<start_function_call>call:read{path:<escape>a.txt<escape>}<end_function_call>
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any

from bushel.chat.structured_output.json_schema import listed, rooted
from bushel.chat.structured_output.lark import Lark, quoted
from bushel.chat.tool_parsers.grammar.call_form import (
    CallForm,
    CallGrammar,
    Knows,
    ToolGrammar,
    ordered,
)
from bushel.chat.tool_parsers.grammar.element_calls import parameters, text_of
from bushel.chat.tool_parsers.reading.argument_values import as_json, escaped, is_text, parameter
from bushel.chat.tool_parsers.reading.key_values import Pairs
from bushel.chat.tool_parsers.reading.parser import NoCall
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, Offered, ToolFormat

_MARKERS = ("<|tool_call>", "<tool_call|>", '<|"|>')
_FUNCTION_MARKERS = ("<start_function_call>", "<end_function_call>", "<escape>")
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


def _grammar(open: str, close: str, quote: str) -> CallGrammar:
    def value(lark: Lark, tool: ToolGrammar, schema: Any) -> str:
        if is_text(schema) and listed(schema) is None:
            return f"{lark.mark(quote)} {lark.upto(quote, (quote,), text_of(schema))}"
        return lark.json(rooted(schema, tool.schema), exact=tool.exact)

    def grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
        bodies = []
        for tool in tools:
            arguments = [
                (f"{quoted(f'{name}:')} {value(lark, tool, schema)}", required)
                for name, schema, required in parameters(tool)
            ]
            inside = ordered(lark, arguments, ",")
            bodies.append(f'{quoted(f"call:{tool.name}{{")} {inside} "}}"')
        return CallForm(bodies, open=open, close=close)

    return grammar


GEMMA = ToolFormat(
    name="gemma",
    detect=Detection(signs=_MARKERS[:1]),
    starts=_MARKERS[:1],
    section=partial(GemmaSection, _MARKERS),
    grammar=_grammar(*_MARKERS),
    history=BY_TEMPLATE,
    markup=_MARKERS[1:],
)

FUNCTION_GEMMA = ToolFormat(
    name="function_gemma",
    detect=Detection(signs=_FUNCTION_MARKERS[:1]),
    starts=_FUNCTION_MARKERS[:1],
    section=partial(GemmaSection, _FUNCTION_MARKERS),
    grammar=_grammar(*_FUNCTION_MARKERS),
    history=BY_TEMPLATE,
    markup=_FUNCTION_MARKERS[1:],
)
