"""Replies as models write them, with what they say; every format adds its own.

Tests take each of them whole, in all pieces, and cut off at every place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bushel.chat.reply.reader import Reader
from bushel.core import CallBegin, CallEnd, CallPart, Delta, ReplyFormat, TextDelta, ThoughtDelta

TOOLS: dict[str, Mapping[str, Any]] = {
    "read": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "lines": {"type": "array", "items": {"type": "integer"}},
            "limit": {"type": "integer"},
            "follow": {"type": "boolean"},
            "where": {"type": "object"},
            "anything": {},
        },
    },
    "write_file": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
    },
    "now": {"type": "object", "properties": {}},
}


@dataclass(frozen=True)
class Example:
    """One reply. calls: (name, arguments) of the complete ones, in order."""

    name: str
    tools: str  # the format
    reply: str
    text: str = ""
    thoughts: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    thinking: str = ""
    opened: bool = False
    markers: tuple[str, ...] = ()  # special tokens
    offered: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: TOOLS)

    def __str__(self) -> str:
        return f"{self.tools or self.thinking}: {self.name}"

    def reader(self) -> Reader:
        markers = tuple(enumerate(self.markers))
        return Reader(
            ReplyFormat(self.tools, self.thinking, markers), self.offered, opened=self.opened
        )


@dataclass
class Call:
    name: str
    json: str = ""
    complete: bool | None = None

    @property
    def arguments(self) -> Any:
        return json.loads(self.json)


@dataclass
class Said:
    """The fold of a reply's deltas. It fails on deltas that are not well formed."""

    text: str = ""
    thoughts: str = ""
    calls: list[Call] = field(default_factory=list)
    order: list[str] = field(default_factory=list)  # of kinds, repetitions left out

    def take(self, delta: Delta) -> None:
        open_call = self.calls[-1] if self.calls and self.calls[-1].complete is None else None
        kind = "call"
        match delta:
            case TextDelta(text):
                assert text
                assert open_call is None
                self.text += text
                kind = "text"
            case ThoughtDelta(text):
                assert text
                assert open_call is None
                self.thoughts += text
                kind = "thought"
            case CallBegin(index, name):
                assert open_call is None
                assert index == len(self.calls)
                self.calls.append(Call(name))
                self.order.append("call")
                return
            case CallPart(index, part):
                assert open_call
                assert part
                assert index == len(self.calls) - 1
                open_call.json += part
            case CallEnd(index, complete):
                assert open_call
                assert index == len(self.calls) - 1
                open_call.complete = complete
                if complete:
                    assert isinstance(open_call.arguments, dict)
        if not self.order or self.order[-1] != kind:
            self.order.append(kind)


def said(deltas: Iterable[Delta]) -> Said:
    result = Said()
    for delta in deltas:
        result.take(delta)
    assert all(call.complete is not None for call in result.calls)
    return result


def read(reader: Reader, pieces: Iterable[str]) -> Said:
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    return said(deltas + reader.finish())


READ = ("read", {"path": "a.txt"})
NOW = ("now", {})

EXAMPLES: list[Example] = []


def add(*examples: Example) -> None:
    EXAMPLES.extend(examples)


_ODD = '{"path": "a \\"}\\" \\u00e9 \\\\", "where": {"x": [{"y": "</tool_call>"}, "{"]}}'
_ODD_CALL = ("read", json.loads(_ODD))

add(
    Example(
        "one call",
        "hermes",
        '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>',
        calls=(READ,),
    ),
    Example(
        "text, two calls, text",
        "hermes",
        'I look.\n\n<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>\n'
        '<tool_call>{"name": "now", "arguments": {}}</tool_call>\nThere.\n',
        text="I look.\nThere.\n",
        calls=(READ, NOW),
    ),
    Example(
        "arguments before the name",
        "hermes",
        f'<tool_call>{{"arguments": {_ODD}, "name": "read"}}</tool_call>',
        calls=(_ODD_CALL,),
    ),
    Example(
        "escapes, braces and end markers in strings",
        "hermes",
        f'<tool_call>{{"name": "read", "arguments": {_ODD}}}</tool_call>',
        calls=(_ODD_CALL,),
    ),
    Example(
        "bare newlines in strings",
        "hermes",
        '<tool_call>{"name": "write_file", "arguments": {"text": "a\n\tb"}}</tool_call>',
        calls=(("write_file", {"text": "a\n\tb"}),),
    ),
    Example(
        "arguments as a string, and a last brace that is missing",
        "hermes",
        '<tool_call>{"name": "read", "arguments": "{\\"path\\": \\"a.txt\\"}"}</tool_call>\n'
        '<tool_call>{"name": "read", "arguments": {"path": "a.txt"}\n</tool_call>',
        calls=(READ, READ),
    ),
    Example(
        "no arguments",
        "hermes",
        '<tool_call>{"name": "now"}</tool_call><tool_call>{"name": "now", "arguments": null}',
        calls=(NOW, NOW),
    ),
    Example(
        "elements where objects are expected",
        "hermes",
        "<tool_call>\n<function=read>\n<parameter=path>\na.txt\n</parameter>\n</function>\n"
        "</tool_call>",
        calls=(READ,),
    ),
    Example(
        "calls behind thoughts",
        "hermes",
        '<think>\nI call <tool_call>{"name": "now"}</tool_call>.\n</think>\n\nSo:\n'
        '<tool_call>{"name": "read", "arguments": {"path": "a.txt"}}</tool_call>',
        thinking="think",
        thoughts='I call <tool_call>{"name": "now"}</tool_call>.',
        text="So:",
        calls=(READ,),
    ),
    Example(
        "values of every type",
        "xml",
        "<tool_call>\n<function=read>\n<parameter=path>\n5\n</parameter>\n<parameter=lines>\n"
        "[1, 2]\n</parameter>\n<parameter=limit>\n10\n</parameter>\n<parameter=follow>\nTrue\n"
        '</parameter>\n<parameter=where>\n{"a": {"b": null}}\n</parameter>\n'
        "<parameter=anything>\nsome words\n</parameter>\n</function>\n</tool_call>",
        calls=(
            (
                "read",
                {
                    "path": "5",
                    "lines": [1, 2],
                    "limit": 10,
                    "follow": True,
                    "where": {"a": {"b": None}},
                    "anything": "some words",
                },
            ),
        ),
    ),
    Example(
        "text with layout of its own, and no tag around the call",
        "xml",
        "Now.\n<function=write_file>\n<parameter=path>b</parameter>\n<parameter=text>\n\n"
        '  if a < b:\n\t"c" \\ é\n\n</parameter>\n</function>\nDone',
        text="Now.\nDone",
        calls=(("write_file", {"path": "b", "text": '\n  if a < b:\n\t"c" \\ é\n'}),),
    ),
    Example(
        "several calls and ends that are missing",
        "xml",
        "<tool_call><function=read><parameter=path>a.txt\n</function></tool_call>\n"
        "<tool_call><function=now></tool_call><tool_call><function=now></function>",
        calls=(READ, NOW, NOW),
    ),
    Example(
        "an object where elements are expected",
        "xml",
        '<function=read>{"path": "a.txt"}</function><tool_call>{"name": "now"}</tool_call>',
        calls=(READ, NOW),
    ),
    Example(
        "two objects",
        "llama",
        '{"name": "read", "parameters": {"path": "a.txt"}}; {"name": "now", "parameters": {}}',
        calls=(READ, NOW),
    ),
    Example(
        "behind the tag",
        "llama",
        'I look. <|python_tag|>{"type": "function", "name": "read", '
        '"parameters": {"path": "a.txt"}}',
        text="I look.",
        calls=(READ,),
        markers=("<|python_tag|>",),
    ),
    Example(
        "an object that is not a call",
        "llama",
        '{"name": "read", "age": 5}; {"name": "now", "parameters": {}}',
        text='{"name": "read", "age": 5}; {"name": "now", "parameters": {}}',
    ),
    Example(
        "two expressions",
        "pythonic",
        "[read(path=\"a)\\\"'\", lines=[1, -2], follow=True, where={'a': (None, 'x,)')}), now()]",
        calls=(
            (
                "read",
                {
                    "path": "a)\"'",
                    "lines": [1, -2],
                    "follow": True,
                    "where": {"a": [None, "x,)"]},
                },
            ),
            NOW,
        ),
    ),
    Example(
        "between markers, in both languages",
        "pythonic",
        'I look.<|tool_call_start|>[read(where={"a": true}, path="""a "b" """,)]'
        "<|tool_call_end|> There.",
        text="I look. There.",
        calls=(("read", {"where": {"a": True}, "path": 'a "b" '}),),
        markers=("<|tool_call_start|>", "<|tool_call_end|>"),
    ),
    Example(
        "lists that are not calls",
        "pythonic",
        "[read(path), now] and [now()]",
        text="[read(path), now] and [now()]",
    ),
    Example(
        "a list of objects at the beginning",
        "generic",
        ' [{"name": "read", "arguments": {"path": "a.txt"}}, {"name": "now", "arguments": {}}]\n',
        calls=(READ, NOW),
    ),
    Example(
        "another format than the model's",
        "glm",
        '<tool_call>{"name": "read", "arguments": {"path": "a.txt"}}</tool_call>\n'
        "<function=now></function>",
        calls=(READ, NOW),
    ),
    Example(
        "tools that were not offered",
        "hermes",
        'Ah <tool_call>\n{"name": "rm", "arguments": {"path": "<function=now></function>"}}\n'
        "</tool_call>\n<function=rm>\n<parameter=path>\n<tool_call>\n</parameter>\n</function> !",
        text='Ah <tool_call>\n{"name": "rm", "arguments": {"path": "<function=now></function>"}}\n'
        "</tool_call>\n<function=rm>\n<parameter=path>\n<tool_call>\n</parameter>\n</function> !",
    ),
    Example(
        "tags in prose, and then a call",
        "xml",
        'The <tool_call> tag and <function=x are markup: <tool_call>{"name": "now"}</tool_call>',
        text="The <tool_call> tag and <function=x are markup:",
        calls=(NOW,),
    ),
)
