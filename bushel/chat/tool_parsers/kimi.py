"""Kimi K2 and K3.

    K2   <|tool_calls_section_begin|><|tool_call_begin|>functions.read:0
         <|tool_call_argument_begin|>{"path": "a.txt"}<|tool_call_end|><|tool_calls_section_end|>
    K3   <|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|>
         <|open|>argument key="path" type="string"<|sep|>a.txt<|close|>argument<|sep|>
         <|close|>call<|sep|><|close|>tools<|sep|>

Newlines are only here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Sequence

from bushel.chat.structured_output.lark import Lark, quoted
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar
from bushel.chat.tool_parsers.grammar.element_calls import Tags, elements
from bushel.chat.tool_parsers.grammar.object_calls import arguments
from bushel.chat.tool_parsers.reading.key_values import Pairs
from bushel.chat.tool_parsers.reading.parser import Listed, NoCall
from bushel.chat.tool_parsers.tool_format import (
    BY_TEMPLATE,
    Detection,
    InlineCalls,
    ToolFormat,
    WrittenCall,
)

_CALLS, _CALLS_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_COUNTED = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?", re.DOTALL)


class KimiSection(Listed):
    calls, calls_end, call = _CALLS, _CALLS_END, _CALL
    between = (_CALL_END,)

    def one(self) -> Generator[None]:
        words, _ = yield from self.until(_ARGUMENTS)
        counted = _COUNTED.fullmatch(words.strip())
        if not counted:
            raise NoCall
        whole = words.strip()
        self.name(whole if whole in self.offered else counted.group(1))
        yield from self.arguments(_CALL_END)
        self.end()


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    bodies = [
        f"{quoted(f'functions.{tool.name}:')} /[0-9]{{1,3}}/ "
        f"{lark.mark(_ARGUMENTS)} {arguments(lark, tool)}"
        for tool in tools
    ]
    return CallForm(bodies, begin=_CALLS, open=_CALL, close=_CALL_END, end=_CALLS_END)


def _write(calls: Sequence[WrittenCall]) -> str:
    """A call's id says its name."""
    written = []
    for call in calls:
        given = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        written.append(f"{_CALL}{call['id']}{_ARGUMENTS}{given}{_CALL_END}")
    return f"{_CALLS}{''.join(written)}{_CALLS_END}"


KIMI = ToolFormat(
    name="kimi",
    detect=Detection(signs=(_CALLS, _ARGUMENTS)),
    starts=(_CALLS, _CALL),
    section=KimiSection,
    grammar=_grammar,
    history=InlineCalls(_CALLS, _write, ids="indexed"),
    markup=(_CALLS_END, _CALL_END, _ARGUMENTS),
)


_OPEN, _CLOSE, _SEP = "<|open|>", "<|close|>", "<|sep|>"
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


class Kimi3Section(Pairs):
    def read(self) -> Generator[None]:
        call, call_end = f"{_OPEN}call", f"{_CLOSE}call{_SEP}"
        yield from self.meet(call)
        marker = call
        while marker == call:
            self.name((yield from self._attributes("tool"))["tool"])
            yield from self._call(call_end)
            marker = yield from self.maybe(call, f"{_CLOSE}tools{_SEP}")

    def _call(self, call_end: str) -> Generator[None]:
        argument, whole = f"{_OPEN}argument", f"{_OPEN}json"
        marker = yield from self.meet(argument, whole, call_end)
        if marker == whole:
            yield from self.until(_SEP)
            yield from self.arguments(f"{_CLOSE}json{_SEP}")
            yield from self.maybe(f"{_CLOSE}json{_SEP}")
            yield from self.meet(call_end)
            self.end()
            return
        self.begin()
        while marker == argument:
            attributes = yield from self._attributes("key")
            text = attributes.get("type", "string") == "string"
            yield from self.argument(attributes["key"], f"{_CLOSE}argument{_SEP}", text=text)
            marker = yield from self.meet(argument, call_end)
        self.close()

    def _attributes(self, needed: str) -> Generator[None, None, dict[str, str]]:
        inside, _ = yield from self.until(_SEP)
        attributes = {
            key: value.replace("&quot;", '"').replace("&amp;", "&")
            for key, value in _ATTRIBUTE.findall(inside)
        }
        if not attributes.get(needed):
            raise NoCall
        return attributes


KIMI3 = ToolFormat(
    name="kimi3",
    detect=Detection(signs=("<|end_of_msg|>",)),
    starts=(f"{_OPEN}tools{_SEP}",),
    section=Kimi3Section,
    grammar=elements(
        Tags(f'{_OPEN}argument key="KEY" type="KIND"{_SEP}', f"{_CLOSE}argument{_SEP}"),
        f'call tool="NAME" index="1"{_SEP}',
        f"{_CLOSE}call{_SEP}",
        begin=f"{_OPEN}tools{_SEP}",
        open=_OPEN,
        end=f"{_CLOSE}tools{_SEP}",
    ),
    history=BY_TEMPLATE,
    markup=(_OPEN, _CLOSE, _SEP),
)
