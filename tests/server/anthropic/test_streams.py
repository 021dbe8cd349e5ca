"""What a client of the Messages API reads, event by event where it matters."""

from __future__ import annotations

import asyncio
import json
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.core import CallBegin, CallEnd, CallPart, Delta, TextDelta, ThoughtDelta
from bushel.server.anthropic.conversation import conversation_of
from bushel.server.anthropic.writer import MessageWriter
from bushel.server.api.opaque_thoughts import unseal
from tests.depth import some
from tests.server.anthropic.messages_client import named, post, put_together
from tests.server.scripted_service import NO_DRAFTS, Service, failing, options, playing, said

WORDS = playing([said("Good ")], [said("day")], [said("!", finish="stop")])
ID = "0" * 31 + "1"
AGENT = playing(
    [said(tokens=3, deltas=(ThoughtDelta("Let me "), ThoughtDelta("look.")))],
    [said(tokens=2, deltas=(TextDelta("I read it."), CallBegin(0, "read")))],
    [said(tokens=4, deltas=(CallPart(0, '{"path": '), CallPart(0, '"a"}'), CallEnd(0, True)))],
    [said(tokens=2, deltas=(CallBegin(1, "list"), CallPart(1, "{}"), CallEnd(1, True)))],
    [said(tokens=1, finish="tool_calls")],
)
CUT = playing(
    [said(tokens=2, deltas=(CallBegin(0, "read"), CallPart(0, '{"path": "a')))],
    [said(tokens=1, finish="length", deltas=(CallEnd(0, False),))],
)


def test_a_stream_is_exactly_start_blocks_delta_and_stop() -> None:
    reply = post(Service(WORDS, cached=3), stream=True)
    usage = {
        "input_tokens": 1,
        "cache_creation_input_tokens": 4,
        "cache_read_input_tokens": 3,
        "output_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    }
    message = {
        "id": f"msg_{ID}",
        "type": "message",
        "role": "assistant",
        "model": "test/model",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    block = {"index": 0}

    def piece(text: str) -> tuple[str, dict[str, Any]]:
        delta = {"type": "text_delta", "text": text}
        return "content_block_delta", {"type": "content_block_delta", **block, "delta": delta}

    assert named(reply.text) == [
        ("message_start", {"type": "message_start", "message": message}),
        (
            "content_block_start",
            {
                "type": "content_block_start",
                **block,
                "content_block": {"type": "text", "text": ""},
            },
        ),
        piece("Good "),
        piece("day"),
        piece("!"),
        ("content_block_stop", {"type": "content_block_stop", **block}),
        (
            "message_delta",
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {**usage, "output_tokens": 9},
            },
        ),
        ("message_stop", {"type": "message_stop"}),
    ]
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["request-id"] == ID


def test_thoughts_text_and_calls_are_blocks_in_their_order() -> None:
    """A client puts together what the model said, block by block. B23, B29."""
    message = put_together(post(Service(AGENT), stream=True).text)
    assert message["content"] == [
        {"type": "thinking", "thinking": "Let me look.", "signature": "YnVzaGVs"},
        {"type": "text", "text": "I read it."},
        {"type": "tool_use", "id": f"toolu_{ID}_2", "name": "read", "input": {"path": "a"}},
        {"type": "tool_use", "id": f"toolu_{ID}_3", "name": "list", "input": {}},
    ]
    assert message["stop_reason"] == "tool_use"
    assert message["usage"]["output_tokens"] == 12


@pytest.mark.parametrize("script", [WORDS, AGENT, CUT], ids=["words", "agent", "cut"])
@pytest.mark.parametrize("thinking", [None, {"type": "adaptive", "display": "omitted"}])
def test_a_whole_reply_is_the_fold_of_the_stream(script: Any, thinking: Any) -> None:
    streamed = put_together(post(Service(script), stream=True, thinking=thinking).text)
    assert streamed == post(Service(script), thinking=thinking).json()


def test_a_call_that_was_cut_off_is_told_as_such() -> None:
    """Not dropped, and nothing that could be taken for arguments. B24."""
    whole = post(Service(CUT)).json()
    assert whole["stop_reason"] == "max_tokens"
    assert whole["content"][0]["name"] == "read"
    assert whole["content"][0]["input"] == {"INVALID_JSON": '{"path": "a'}
    pieces = [data["delta"] for name, data in named(post(Service(CUT), stream=True).text)
              if name == "content_block_delta"]  # fmt: skip
    assert [piece["partial_json"] for piece in pieces] == ['{"path": "a']


def test_thoughts_that_are_left_out_come_back_by_their_signature() -> None:
    """The next turn holds the thoughts, though the client never saw them."""
    hidden = {"type": "adaptive", "display": "omitted"}
    content = put_together(post(Service(AGENT), stream=True, thinking=hidden).text)["content"]
    assert content[0]["thinking"] == ""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]
    assert conversation_of({"messages": turns})["messages"][1]["reasoning_content"] == (
        "Let me look."
    )
    content[0]["signature"] = "c29tZW9uZSBlbHNl"  # control: it was the signature
    assert "reasoning_content" not in conversation_of({"messages": turns})["messages"][1]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (said("a", finish="stop"), ("end_turn", None)),
        (said("a", finish="length"), ("max_tokens", None)),
        (said("a", finish="stop", stop="END"), ("stop_sequence", "END")),
        (said("a", finish="tool_calls"), ("tool_use", None)),
    ],
)
def test_every_reply_says_why_it_ended(step: Any, reason: tuple[str, str | None]) -> None:
    """Stop reason and stop sequence are those of Anthropic's API. B22."""
    whole = post(Service(playing([step]))).json()
    assert (whole["stop_reason"], whole["stop_sequence"]) == reason


def test_an_empty_reply_is_a_message_without_blocks() -> None:
    script = playing([said(tokens=1, finish="stop")])
    whole = post(Service(script)).json()
    assert (whole["content"], whole["stop_reason"]) == ([], "end_turn")
    assert put_together(post(Service(script), stream=True).text) == whole


def test_white_space_between_thoughts_and_calls_is_no_block() -> None:
    blank = (
        ThoughtDelta("Hm."),
        TextDelta("\n"),
        TextDelta("\n"),
        CallBegin(0, "read"),
        CallEnd(0, True),
    )
    whole = post(Service(playing([said(deltas=blank, finish="tool_calls")]))).json()
    assert [it["type"] for it in whole["content"]] == ["thinking", "tool_use"]
    kept = (ThoughtDelta("Hm."), TextDelta("\n"), TextDelta(" so"), TextDelta("\n"))
    whole = post(Service(playing([said(deltas=kept, finish="stop")]))).json()
    assert whole["content"][1:] == [{"type": "text", "text": "\n so\n"}]


def test_no_tokens_at_all_may_be_asked_for() -> None:
    """As clients do to have a prompt kept before it is needed."""
    service = Service(playing([said("a", finish="length")]))
    whole = post(service, max_tokens=0).json()
    assert (whole["content"], whole["stop_reason"]) == ([], "max_tokens")
    assert whole["usage"]["output_tokens"] == 0
    assert service.jobs[0].params.max_tokens == 1


def test_a_reply_may_go_on_past_the_models_own_end() -> None:
    """With `ignore_eos`, as in the other APIs; without it, or null, the model ends its reply."""
    service = Service()
    for fields in ({"ignore_eos": True}, {"ignore_eos": None}, {}):
        assert post(service, **fields).status_code == 200
    assert [job.params.ignore_eos for job in service.jobs] == [True, False, False]
    assert post(service, ignore_eos="maybe").status_code == 400


def test_silence_is_filled_with_pings_also_before_the_message() -> None:
    """A client that waits gets `ping` events, and the message as ever. B54."""

    async def later(wait: asyncio.Event) -> None:
        await asyncio.sleep(0.1)
        wait.set()

    wait = asyncio.Event()

    def script(job: Any) -> Any:
        asyncio.get_running_loop().create_task(later(wait))
        return [wait, [said("Hi", finish="stop")]]

    service = Service(script, options=options(keepalive_seconds=0.02))
    text = post(service, stream=True).text
    names = [name for name, _ in named(text)]
    assert names[0] == "ping"
    assert {"type": "ping"} in [data for _, data in named(text)]
    assert put_together(text)["content"] == [{"type": "text", "text": "Hi"}]


@pytest.mark.parametrize("before", [[], [[said("Hi")]]])
def test_a_stream_that_fails_ends_with_an_error_and_no_stop(before: list[Any]) -> None:
    """The last event is an `error`, in Anthropic's form. B48a."""
    script = playing(*before, failing(503, "engine_restarted"))
    *_, (name, data) = named(post(Service(script), stream=True).text)
    assert name == "error"
    assert data["error"] == {"type": "overloaded_error", "message": "It went wrong."}


# -- generated --------------------------------------------------------------------------------

_WORDS = st.text(max_size=6) | st.sampled_from([" ", "\n\n", " a"])


@st.composite
def replies(draw: st.DrawFn) -> list[Delta]:
    """What a reader may emit: calls are closed before anything else is said."""
    found: list[Delta] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from("tTc"), max_size=8)):
        if kind == "c":
            arguments = draw(
                st.sampled_from(['{"a": [1, {"b": "}"}]}', "{}", "", '{"a": "é\\u00e9"}'])
            )
            cut = draw(st.integers(0, len(arguments)))
            found.append(CallBegin(calls, draw(st.sampled_from(["read", "list"]))))
            found += [CallPart(calls, it) for it in (arguments[:cut], arguments[cut:]) if it]
            found.append(CallEnd(calls, True))
            calls += 1
        else:
            said_so = draw(_WORDS.filter(bool))
            found.append(TextDelta(said_so) if kind == "t" else ThoughtDelta(said_so))
    return found


def is_text_of(delta: Delta) -> bool:
    return isinstance(delta, TextDelta)


def writer(hides_thoughts: bool) -> MessageWriter:
    tokens = {"prompt_ids": (1, 2, 3), "cached_tokens": 1, "stored_tokens": 1}
    ticket = SimpleNamespace(id=ID, drafts=NO_DRAFTS, **tokens)
    answer: Any = SimpleNamespace(tickets=[ticket])
    return MessageWriter(answer, "test/model", hides_thoughts=hides_thoughts, silent=False)


@settings(max_examples=some(200))
@given(replies(), st.integers(1, 4), st.booleans())
def test_streams_and_whole_replies_are_equal_whatever_is_said(
    deltas: list[Delta], size: int, hidden: bool
) -> None:
    cuts = range(0, len(deltas), size)
    steps = [said(tokens=1, deltas=tuple(deltas[at : at + size])) for at in cuts]
    steps.append(said(finish="stop"))
    one, other = writer(hidden), writer(hidden)
    streamed = one.begin() + b"".join(one.write([step]) for step in steps) + one.end()
    for step in steps:
        other.fold([step])
    message = put_together(streamed.decode())
    assert message == json.loads(other.whole())
    texts = [it["text"] for it in message["content"] if it["type"] == "text"]
    runs = [
        "".join(it.text for it in run) for is_text, run in groupby(deltas, is_text_of) if is_text
    ]
    assert texts == [run for run in runs if run.strip()]
    thoughts = [
        unseal(it["signature"]) if hidden else it["thinking"]
        for it in message["content"]
        if it["type"] == "thinking"
    ]
    assert "".join(thoughts) == "".join(
        delta.text for delta in deltas if isinstance(delta, ThoughtDelta)
    )
    calls = [it for it in message["content"] if it["type"] == "tool_use"]
    assert len({call["id"] for call in calls}) == sum(
        isinstance(delta, CallBegin) for delta in deltas
    )
