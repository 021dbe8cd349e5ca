"""Thoughts and calls as clients of the chat API read them, streamed and whole."""

from __future__ import annotations

from typing import Any

from bushel.core import CallBegin, CallEnd, CallPart, TextDelta, ThoughtDelta

from .scripted_service import Service, chat, events, playing, said

REPLY = playing(
    [said(tokens=2, deltas=(ThoughtDelta("Let me "), ThoughtDelta("see.")))],
    [said(tokens=1, deltas=(TextDelta("I look."), CallBegin(0, "read")))],
    [said(tokens=3, deltas=(CallPart(0, '{"path":'), CallPart(0, '"a"}'), CallEnd(0, True)))],
    [said(tokens=1, deltas=(CallBegin(1, "list"), CallPart(1, "{}"), CallEnd(1, True)))],
    [said(finish="tool_calls")],
)
CUT = playing(
    [said(tokens=1, deltas=(CallBegin(0, "read"), CallPart(0, '{"pa')))],
    [said(deltas=(CallEnd(0, False),), finish="length")],
)


def deltas(text: str) -> list[dict[str, Any]]:
    chunks = [event for event in events(text) if isinstance(event, dict)]
    return [chunk["choices"][0]["delta"] for chunk in chunks]


def folded(found: list[dict[str, Any]]) -> dict[str, Any]:
    """A message put together the way clients do it."""
    message: dict[str, Any] = {"content": "", "reasoning": "", "calls": []}
    for delta in found:
        message["content"] += delta.get("content", "")
        message["reasoning"] += delta.get("reasoning_content", "")
        assert delta.get("reasoning") == delta.get("reasoning_content")
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(message["calls"])
                assert call["type"] == "function"
                message["calls"].append({"id": call["id"], **call["function"]})
            else:
                arguments = call["function"]["arguments"]
                message["calls"][call["index"]]["arguments"] += arguments
    return message


def test_thoughts_text_and_calls_stream_apart() -> None:
    """Reasoning, content and calls are fields of their own; `tool_calls` ends it. B23, B29."""
    text = chat(Service(REPLY), stream=True).text
    found = folded(deltas(text))
    assert (found["reasoning"], found["content"]) == ("Let me see.", "I look.")
    calls = [(call["name"], call["arguments"]) for call in found["calls"]]
    assert calls == [("read", '{"path":"a"}'), ("list", "{}")]
    assert len({call["id"] for call in found["calls"]}) == 2
    assert '"finish_reason":"tool_calls"' in text
    assert len(deltas(text)) == 10  # the role, every piece as it came, and the finish


def test_a_whole_reply_has_what_the_stream_has() -> None:
    reply = chat(Service(REPLY)).json()["choices"][0]
    message = reply["message"]
    assert message["content"] == "I look."
    assert message["reasoning_content"] == message["reasoning"] == "Let me see."
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "read", "arguments": '{"path":"a"}'},
        {"name": "list", "arguments": "{}"},
    ]
    assert all(call["id"].startswith("call_") for call in message["tool_calls"])
    assert reply["finish_reason"] == "tool_calls"


def test_a_reply_of_calls_alone_has_no_content() -> None:
    script = playing(
        [said(tokens=1, deltas=(CallBegin(0, "f"), CallPart(0, "{}"), CallEnd(0, True)))],
        [said(finish="tool_calls")],
    )
    assert chat(Service(script)).json()["choices"][0]["message"]["content"] is None
    assert chat(Service()).json()["choices"][0]["message"].get("tool_calls") is None


def test_a_call_that_was_cut_off_is_told_as_far_as_it_came() -> None:
    """Half of its arguments, and `length`, streamed and whole. B24."""
    choice = chat(Service(CUT)).json()["choices"][0]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"pa'
    assert choice["finish_reason"] == "length"
    text = chat(Service(CUT), stream=True).text
    assert folded(deltas(text))["calls"][0]["arguments"] == '{"pa'
    assert '"finish_reason":"length"' in text
