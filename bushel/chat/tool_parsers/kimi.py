"""Kimi K2 and K3, and Solar, which writes calls like K2 with other markers.

    K2   <|tool_calls_section_begin|><|tool_call_begin|>functions.read:0
         <|tool_call_argument_begin|>{"path": "a.txt"}<|tool_call_end|><|tool_calls_section_end|>
    K3   <|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|>
         <|open|>argument key="path" type="string"<|sep|>a.txt<|close|>argument<|sep|>
         <|close|>call<|sep|><|close|>tools<|sep|>

Newlines are only here.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from bushel.chat.tool_parsers.pairs import Pairs
from bushel.chat.tool_parsers.parse import Listed, NoCall
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat

_CALLS, _CALLS_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_COUNTED = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?", re.DOTALL)

_SOLAR_CALLS, _SOLAR_CALLS_END = "<|tool_calls|>", "<|calls|>"
_SOLAR_CALL, _SOLAR_END = "<|tool_call:begin|>", "<|tool_call:end|>"
_SOLAR_NAME, _SOLAR_ARGUMENTS = "<|tool_call:name|>", "<|tool_call:args|>"


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


class Kimi(ToolFormat):
    name = "kimi"
    starts = (_CALLS, _CALL)
    signs = (_CALLS, _ARGUMENTS)
    markup = (_CALLS_END, _CALL_END, _ARGUMENTS)

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return KimiSection(start, offered, first)


class SolarSection(Listed):
    calls, calls_end, call = _SOLAR_CALLS, _SOLAR_CALLS_END, _SOLAR_CALL
    between = (_SOLAR_END,)

    def one(self) -> Generator[None]:
        yield from self.until(_SOLAR_NAME)
        name, _ = yield from self.until(_SOLAR_ARGUMENTS)
        self.name(name)
        yield from self.arguments(_SOLAR_END)
        self.end()


class Solar(ToolFormat):
    name = "solar"
    starts = (_SOLAR_CALLS, _SOLAR_CALL)
    signs = (_SOLAR_CALL,)
    markup = (_SOLAR_CALLS_END, _SOLAR_END, _SOLAR_NAME, _SOLAR_ARGUMENTS)

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return SolarSection(start, offered, first)


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
        found = {
            key: value.replace("&quot;", '"').replace("&amp;", "&")
            for key, value in _ATTRIBUTE.findall(inside)
        }
        if not found.get(needed):
            raise NoCall
        return found


class Kimi3(ToolFormat):
    name = "kimi3"
    starts = (f"{_OPEN}tools{_SEP}",)
    signs = ("<|end_of_msg|>",)
    markup = (_OPEN, _CLOSE, _SEP)

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return Kimi3Section(start, offered, first)
