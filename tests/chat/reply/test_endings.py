"""How a reply with calls ends (B23, B24)."""

from __future__ import annotations

import pytest

from bushel.chat.reply.reader import Reader
from bushel.core import CallBegin, CallEnd, CallPart, ReplyFormat, TextDelta
from tests.chat.reply.sample_replies import TOOLS, read

CALL = '<tool_call>{"name": "read", "arguments": {"path": "a.txt"}}</tool_call>'


@pytest.mark.parametrize(
    ("reply", "finish", "reason"),
    [
        (CALL, "stop", "tool_calls"),
        (f"Hello {CALL} there", "stop", "tool_calls"),
        (CALL, "length", "length"),
        (CALL[:-30], "length", "length"),
        (CALL[:-30], "stop", "stop"),
        (CALL.replace("read", "rm"), "stop", "stop"),
        ("Hello", "stop", "stop"),
    ],
)
def test_the_finish_reason_says_calls_where_there_are_any(
    reply: str, finish: str, reason: str
) -> None:
    """A client reads `tool_calls`, unless the limit cut the reply or none was made. B23, B24."""
    reader = Reader(ReplyFormat("hermes"), TOOLS)
    read(reader, [reply])
    assert reader.reason(finish) == reason  # type: ignore[arg-type]


def test_arguments_stream_as_they_are_generated() -> None:
    """A client has the name and each piece of the arguments when the model has said it. B23."""
    reader = Reader(ReplyFormat("hermes"), TOOLS)
    assert reader.feed('<tool_call>{"name": "read"') == [CallBegin(0, "read")]
    assert reader.feed(', "arguments": {"pa') == [CallPart(0, '{"pa')]
    assert reader.feed('th": "a') == [CallPart(0, 'th": "a')]
    assert reader.feed('"}') == [CallPart(0, '"}')]
    assert reader.feed("}") == [CallEnd(0, True)]
    assert reader.calls == 1


def test_string_parameters_stream_as_they_are_generated() -> None:
    """A long string in XML arrives piece by piece, as JSON. B23."""
    reader = Reader(ReplyFormat("xml"), TOOLS)
    reader.feed("<function=write_file><parameter=text>")
    assert reader.feed('a "') == [CallPart(0, '{"text": "a \\"')]
    assert reader.feed("b\n") == [CallPart(0, "b")]
    assert reader.feed("c") == [CallPart(0, "\\nc")]


def test_a_call_that_is_cut_off_is_told_as_such() -> None:
    """A client gets the arguments as far as they came, and `length`. B24."""
    reader = Reader(ReplyFormat("hermes"), TOOLS)
    said = read(reader, [CALL[:-16]])
    (call,) = said.calls
    assert (call.name, call.json, call.complete) == ("read", '{"path": "a.tx', False)
    assert reader.reason("length") == "length"


def test_arguments_that_are_not_json_do_not_count_as_complete() -> None:
    """The call is told, as an incomplete one, and nothing of it is content. B24."""
    said = read(Reader(ReplyFormat("hermes"), TOOLS), [CALL.replace('"a.txt"', "a.txt")])
    assert [call.complete for call in said.calls] == [False]
    assert said.text == ""


def test_a_broken_call_does_not_hide_what_follows() -> None:
    """The text behind it is said. B24."""
    reply = '<tool_call>{"name": "read", oh no, sorry.'
    reader = Reader(ReplyFormat("hermes"), TOOLS)
    deltas = [*reader.feed(reply), *reader.finish()]
    assert deltas[:2] == [CallBegin(0, "read"), CallEnd(0, False)]
    assert isinstance(deltas[2], TextDelta)
    assert deltas[2].text.endswith("oh no, sorry.")
