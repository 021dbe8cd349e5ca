"""What a grammar of calls lets through, the reader of replies reads as such calls (B25)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from bushel.chat.reply.format_detection import detect_formats
from bushel.chat.reply.reader import Reader
from bushel.chat.reply_constraint import constraint_of
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.core import CallBegin, CallEnd, CallPart, ReplyFormat, RequestError, TextDelta
from bushel.models import Preparer
from tests.chat.structured_output.random_replies import host, replies, takes
from tests.depth import one_in, rarely

EDIT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "mode": {"type": "string", "enum": ["fast", "slow one"]},
        "note": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2},
        "deep": {"$ref": "#/$defs/deep"},
    },
    "required": ["path", "count", "mode", "note", "tags", "deep"],
    "additionalProperties": False,
    "$defs": {
        "deep": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}},
            "required": ["on"],
            "additionalProperties": False,
        }
    },
}
FIND: dict[str, Any] = {
    "type": "object",
    "properties": {
        "near": {"type": "number", "minimum": -10, "maximum": 1000},
        "what": {"type": "string", "maxLength": 6},
        "all": {"type": "boolean"},
    },
    "required": ["what"],
}
OFFERED: dict[str, Any] = {"edit": EDIT, "find": FIND, "stop": {"type": "object", "properties": {}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": it, "strict": True}}
    for name, it in OFFERED.items()
]
HARMONY = tuple(f"<|{it}|>" for it in ("channel", "message", "start", "end", "call", "constrain"))
SPECIAL = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "llama": ("<|python_tag|>",),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
    "deepseek": tuple(
        f"<｜tool▁{it}｜>"  # noqa: RUF001
        for it in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
    ),
    "glm": ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    "kimi": ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>"),
    "kimi3": ("<|open|>", "<|close|>", "<|sep|>"),
    "minimax3": ("]<]minimax[>[",),
    "dsml": ("｜DSML｜",),  # noqa: RUF001
    "gemma": ("<|tool_call>", "<tool_call|>", '<|"|>'),
    "granite": ("<|tool_call|>",),
    "cohere": ("<|START_ACTION|>", "<|END_ACTION|>"),
    "pythonic": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "harmony": HARMONY,
}
# What ends free text in one format or another.
CLOSING = (
    *('"', '"}', "}", "</think>", "\n</parameter>\n", "</parameter>", "</param>", "<escape>"),
    *('<|"|>', "</arg_value>", "</longcat_arg_value>", "</arg_value:opensource>"),
    *("</atem:parameter>", "</｜DSML｜parameter>", "<|close|>argument<|sep|>"),  # noqa: RUF001
    *("<|end|><|start|>assistant", "<|tool_calls_section_end|>", "</tool_calls:opensource>"),
    *(f"]<]minimax[>[</{it}>" for it in ("path", "note", "what")),
    "<｜tool▁calls▁end｜>",  # noqa: RUF001
)
CASES = [(name, False) for name in FORMATS if name != "harmony"] + [(it, True) for it in SPECIAL]


def twice(case: tuple[str, bool]) -> bool:
    """Whether it is tried with markers that are tokens, too."""
    return case[0] in SPECIAL and not case[1]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("hosts")

    @cache
    def made(special: tuple[str, ...]) -> Preparer:
        return host(Path(folder) / str(hash(special)), special)

    return made


def style_of(name: str, host: Preparer) -> ReplyFormat:
    thinking = "harmony" if name == "harmony" else "think"
    return detect_formats("", host.tokenizer.controls, tools=name, thinking=thinking)


def read(reply_format: ReplyFormat, text: str) -> tuple[list[tuple[str, Any]], str]:
    """The calls of a reply, all of them complete, and what else it says."""
    reader = Reader(reply_format, OFFERED)
    deltas = reader.feed(text) + reader.finish()
    names = [delta.name for delta in deltas if isinstance(delta, CallBegin)]
    assert [delta.complete for delta in deltas if isinstance(delta, CallEnd)] == [True] * len(
        names
    ), text
    parts = [delta for delta in deltas if isinstance(delta, CallPart)]
    said = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    calls = [
        (name, json.loads("".join(part.json for part in parts if part.index == at)))
        for at, name in enumerate(names)
    ]
    return calls, said.strip()


def random_replies(
    hosts: Any, name: str, special: bool, request: dict[str, Any], end: float = 0.5
) -> list[tuple[list[tuple[str, Any]], str]]:
    it = hosts(SPECIAL[name] if special else ())
    reply_format = style_of(name, it)
    constraint = constraint_of(
        reply_format, {"messages": [], "tools": TOOLS, **request}, opened=False, host=it
    )
    assert constraint is not None
    assert constraint.grammar is not None
    hints = [*CLOSING, *FORMATS[name].starts]
    texts = replies(it, constraint.grammar, reply_format, 3, hints, end=end)
    found = [read(reply_format, text) for text in texts]
    for calls, _ in found:
        for called, arguments in calls:
            jsonschema_rs.validate(OFFERED[called], arguments)
    return found


@pytest.mark.parametrize(("name", "special"), one_in(3, CASES))
def test_a_required_call_is_made_with_valid_arguments(hosts: Any, name: str, special: bool) -> None:
    """Also with arguments of every kind, and with markers that are tokens or text. B23, B26."""
    for calls, said in random_replies(hosts, name, special, {"tool_choice": "required"}):
        assert calls
        assert not said


@pytest.mark.parametrize(("name", "special"), one_in(3, rarely(CASES, twice)))
def test_a_named_tool_is_called_once(hosts: Any, name: str, special: bool) -> None:
    for calls, said in random_replies(hosts, name, special, {"tool_choice": {"name": "edit"}}):
        assert [called for called, _ in calls] == ["edit"]
        assert not said


@pytest.mark.parametrize(("name", "special"), one_in(3, rarely(CASES, twice)))
def test_a_call_that_the_model_makes_by_itself_is_held_to_its_schema(
    hosts: Any, name: str, special: bool
) -> None:
    """Text is free, and at most one call is made where more are not wanted."""
    for calls, _ in random_replies(hosts, name, special, {"parallel": False}, end=0.1):
        assert len(calls) <= 1


def test_strict_tools_leave_plain_text_alone(hosts: Any) -> None:
    it = hosts(())
    for name in FORMATS:
        if name == "harmony":
            continue
        reply_format = style_of(name, it)
        constraint = constraint_of(reply_format, {"tools": TOOLS}, opened=False, host=it)
        assert constraint is not None
        assert takes(it, constraint.grammar or "", "Hello. <b>1 < 2</b>"), name
        assert takes(it, constraint.grammar or "", "<think>Hm.</think>\n\nHello."), name
        begins = [f"See {start}\nhello" for start in FORMATS[name].starts if len(start) > 1]
        assert not all(takes(it, constraint.grammar or "", text) for text in begins), name


def test_a_deferred_tool_can_be_called_once_the_model_knows_it(hosts: Any) -> None:
    later = [*TOOLS[:1], {**TOOLS[2], "deferred": True}]
    told = [{"role": "tool", "content": [{"type": "tool_reference", "name": "stop"}]}]
    call = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    for messages, good in (([], False), (told, True)):
        request = {"messages": messages, "tools": later, "tool_choice": "required"}
        constraint = constraint_of(ReplyFormat("hermes"), request, opened=False, host=hosts(()))
        assert constraint is not None
        assert takes(hosts(()), constraint.grammar or "", call) == good


def test_calls_that_nobody_asked_to_hold_are_not_held(hosts: Any) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": FIND}}]
    reply_format = style_of("hermes", hosts(()))
    assert constraint_of(reply_format, {"tools": tools}, opened=False, host=hosts(())) is None
    assert constraint_of(reply_format, {"messages": []}, opened=False, host=hosts(())) is None


@pytest.mark.parametrize(
    ("reply_format", "request_", "param"),
    [
        (ReplyFormat(), {"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
        (ReplyFormat("hermes"), {"tools": [], "tool_choice": "required"}, "tool_choice"),
        (ReplyFormat("hermes"), {"tools": TOOLS, "tool_choice": {"name": "none"}}, "tool_choice"),
    ],
)
def test_a_call_that_cannot_be_enforced_is_refused_by_name(
    hosts: Any, reply_format: ReplyFormat, request_: dict[str, Any], param: str
) -> None:
    with pytest.raises(RequestError) as refused:
        constraint_of(reply_format, request_, opened=False, host=hosts(()))
    assert refused.value.param == param


def test_what_cannot_be_enforced_is_left_out_unless_a_tool_is_strict(hosts: Any) -> None:
    odd = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    tool = {"name": "odd", "parameters": odd}
    request = {"tools": [{"type": "function", "function": tool}], "tool_choice": "required"}
    constraint = constraint_of(ReplyFormat("hermes"), request, opened=False, host=hosts(()))
    assert constraint is not None
    text = '<tool_call>\n{"name": "odd", "arguments": {"a": [1, 1]}}\n</tool_call>'
    assert takes(hosts(()), constraint.grammar or "", text)
    request["tools"] = [{"type": "function", "function": {**tool, "strict": True}}]
    with pytest.raises(RequestError, match=r"parameters\.properties\.a\.uniqueItems"):
        constraint_of(ReplyFormat("hermes"), request, opened=False, host=hosts(()))
