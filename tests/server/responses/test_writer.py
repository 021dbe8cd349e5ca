"""Responses as events and as one object, for replies that a script plays."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from bushel.core import TokenLogprob
from bushel.core.delta import Delta, TextDelta, ThoughtDelta
from bushel.server.api.opaque_thoughts import unseal
from bushel.server.responses.envelope import Envelope, fields_of
from bushel.server.responses.schema import ReasoningOptions, ResponsesRequest
from bushel.server.responses.tools import offers_of
from bushel.server.responses.writer import ResponseWriter
from tests.depth import one_in, some
from tests.server.responses.scripted_replies import (
    LOOK,
    PATCH,
    THOUGHTFUL,
    Talk,
    call,
    event,
    nameless,
    replying,
    respond,
    steps,
    streamed,
)
from tests.server.scripted_service import (
    NO_DRAFTS,
    Service,
    ask,
    failing,
    options,
    playing,
    request_bytes,
    run,
    served,
)

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TOOLS = [LOOK, PATCH]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [it["type"].removeprefix("response.") for it in events]


def tell(*deltas: Delta, finish: str = "stop", **body: Any) -> list[dict[str, Any]]:
    reply = respond(replying(*deltas, finish=finish), stream=True, tools=TOOLS, **body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    return streamed(reply.text)


def whole(*deltas: Delta, finish: str = "stop", **body: Any) -> dict[str, Any]:
    reply = respond(replying(*deltas, finish=finish), tools=TOOLS, **body)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def test_a_stream_has_every_event_in_order() -> None:
    """Thoughts, text and calls are items of their own, each with its own events. B23, B29."""
    events = tell(*THOUGHTFUL)
    text, part, item = "output_text", "content_part", "output_item"
    called = ["function_call_arguments.delta", "function_call_arguments.done", f"{item}.done"]
    assert kinds(events) == [
        "created",
        "in_progress",
        *(f"{item}.added", f"{part}.added"),
        *("reasoning_text.delta", "reasoning_text.delta", "reasoning_text.done"),
        *(f"{part}.done", f"{item}.done"),
        *(f"{item}.added", f"{part}.added"),
        *(f"{text}.delta", f"{text}.delta", f"{text}.done"),
        *(f"{part}.done", f"{item}.done"),
        *(f"{item}.added", called[0], *called),
        *(f"{item}.added", *called),
        "completed",
    ]
    for told in events:
        EVENT.validate_python(told)
    responses = [it["response"] for it in events if "response" in it]
    assert len({response["id"] for response in responses}) == 1
    done = [it["item"] for it in events if it["type"] == "response.output_item.done"]
    assert responses[-1]["output"] == done
    assert [response["status"] for response in responses] == [
        "in_progress",
        "in_progress",
        "completed",
    ]


def test_an_item_is_announced_empty_and_ends_full() -> None:
    events = tell(*THOUGHTFUL)
    added = [it["item"] for it in events if it["type"] == "response.output_item.added"]
    done = [it["item"] for it in events if it["type"] == "response.output_item.done"]
    for before, after in zip(added, done, strict=True):
        assert before["id"] == after["id"]
        assert (before["status"], after["status"]) == ("in_progress", "completed")
    assert [it["arguments"] for it in done[2:]] == ['{"at": "here"}', "{}"]
    assert len({it["call_id"] for it in done[2:]}) == 2
    assert done[1]["content"][0]["text"] == "\n\nI look."


def test_a_whole_reply_validates_and_says_what_was_asked() -> None:
    asked = {"metadata": {"a": "b"}, "temperature": 0.5, "reasoning": {"effort": "low"}}
    found = whole(*THOUGHTFUL, finish="tool_calls", instructions="Be brief.", **asked)
    Response.model_validate(found)
    assert found["id"].startswith("resp_")
    assert (found["status"], found["object"], found["error"]) == ("completed", "response", None)
    assert found["tools"] == TOOLS
    assert found["reasoning"] == {"effort": "low", "summary": None}
    for name, value in asked.items():
        assert found[name] == value or name == "reasoning"
    assert found["usage"] == {
        "input_tokens": 8,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 7},
        "output_tokens": len(THOUGHTFUL) + 1,
        "output_tokens_details": {
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
            "reasoning_tokens": 2,
        },
        "total_tokens": 9 + len(THOUGHTFUL),
    }


@st.composite
def replies(draw: st.DrawFn) -> tuple[list[Delta], str]:
    """What a model may say, with a call cut off at the end perhaps."""
    texts = st.text(max_size=5)
    found: list[Delta] = []
    for kind in draw(st.lists(st.sampled_from(["text", "thought", "call", "custom"]), max_size=6)):
        if kind in ("text", "thought"):
            found.append((TextDelta if kind == "text" else ThoughtDelta)(draw(texts)))
        else:
            name = "look" if kind == "call" else "patch"
            found += call(name, *draw(st.lists(texts, max_size=3)), at=len(found))
    finish = draw(st.sampled_from(["stop", "length", "tool_calls"]))
    return found, finish


class Answer:
    """As much of a `service.multi_ticket.MultiTicket` as a writer looks at."""

    ticket = SimpleNamespace(prompt_ids=(1, 2), cached_tokens=1, stored_tokens=0, drafts=NO_DRAFTS)
    tickets = (ticket,)


def writer(body: ResponsesRequest) -> ResponseWriter:
    answer: Any = Answer()
    service: Any = Service()
    envelope = Envelope("resp_1", 0, fields_of(body, "model"))
    return ResponseWriter(service, answer, envelope, body, offers_of(body.tools, ()))


@settings(max_examples=some(100))
@given(replies(), st.booleans(), st.booleans(), st.data())
def test_a_whole_reply_is_what_its_stream_ends_with(
    reply: tuple[list[Delta], str], summarised: bool, encrypted: bool, data: st.DataObject
) -> None:
    """The fold of the deltas, and of the items that they tell of, in any batches. B20, B24."""
    deltas, finish = reply
    events = [event(delta) for delta in deltas] + [event(finish=finish)]
    cut = data.draw(st.integers(0, len(events)))
    summary = ReasoningOptions(summary="auto" if summarised else None)
    include = ["reasoning.encrypted_content"] if encrypted else []
    body = ResponsesRequest(tools=TOOLS, reasoning=summary, include=include)
    one, two = writer(body), writer(body)
    pieces = [one.begin(), one.write(events[:cut]), one.keepalive(), one.write(events[cut:])]
    told = streamed((b"".join(pieces) + one.end()).decode())
    two.fold(events)
    last = told[-1]["response"]
    assert nameless(json.loads(two.whole())) == nameless(last)
    said: dict[str, str] = {}
    for it in told:
        EVENT.validate_python(it)
        if it["type"].endswith(".delta"):
            said[it["item_id"]] = said.get(it["item_id"], "") + it["delta"]
    for item in last["output"]:
        parts = item.get("content") or item.get("summary") or ()
        texts = [part["text"] for part in parts]
        texts += [item[key] for key in ("arguments", "input") if key in item]
        assert [said.get(item["id"], "")] == texts


def test_thoughts_are_a_summary_where_one_is_asked_for() -> None:
    """What Codex and the AI SDK show; and only once."""
    events = tell(ThoughtDelta("Hm."), TextDelta("Yes."), reasoning={"summary": "auto"})
    assert kinds(events)[2:8] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    for told in events:
        EVENT.validate_python(told)
    item = events[-1]["response"]["output"][0]
    assert item["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert "content" not in item
    assert "encrypted_content" not in item


def test_thoughts_can_be_carried_by_the_client() -> None:
    found = whole(ThoughtDelta("Hm."), TextDelta("Yes."), include=["reasoning.encrypted_content"])
    assert unseal(found["output"][0]["encrypted_content"]) == "Hm."


def test_a_custom_call_is_text_and_a_nested_one_has_its_namespace() -> None:
    custom = call("patch", '{"inp', 'ut": "a\\', 'nb"', "}")
    events = tell(*custom)
    assert [it["delta"] for it in events if it["type"].endswith("input.delta")] == ["a", "\nb"]
    for told in events:
        EVENT.validate_python(told)
    [item] = events[-1]["response"]["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "patch", "a\nb")
    tools = [{"type": "namespace", "name": "agents", "tools": [LOOK, PATCH]}]
    for name in ("look", "patch"):
        reply = respond(replying(*call(f"agents__{name}", '{"input": "a"}')), tools=tools)
        [item] = reply.json()["output"]
        assert (item["namespace"], item["name"]) == ("agents", name)


@pytest.mark.parametrize(("name", "key"), one_in(2, [("look", "arguments"), ("patch", "input")]))
def test_a_call_that_was_cut_off_says_so(name: str, key: str) -> None:
    """The item and the response are incomplete, with the input as far as it came. B24."""
    said = call(name, '{"input": "ha', complete=False)
    found = whole(TextDelta("I look."), *said, finish="length")
    assert found["status"] == "incomplete"
    assert found["incomplete_details"] == {"reason": "max_output_tokens"}
    message, cut = found["output"]
    assert (message["status"], cut["status"]) == ("completed", "incomplete")
    assert cut[key] == ('{"input": "ha' if name == "look" else "ha")
    assert kinds(tell(*said, finish="length"))[-1] == "incomplete"


def test_text_that_was_cut_off_says_so_and_a_stop_does_not() -> None:
    found = whole(TextDelta("Once"), finish="length")
    assert (found["status"], found["output"][0]["status"]) == ("incomplete", "incomplete")
    assert (found["completed_at"], found["error"]) == (None, None)
    found = whole(TextDelta("Once"))
    assert (found["status"], found["output"][0]["status"]) == ("completed", "completed")


def test_a_silent_reply_is_an_empty_message() -> None:
    for deltas in ([], [TextDelta("\n")]):
        [item] = whole(*deltas)["output"]
        assert item["content"] == [
            {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        ]


def test_white_space_before_a_call_is_no_message() -> None:
    found = whole(ThoughtDelta("\n"), TextDelta("\n\n"), *call("look", "{}"))
    assert [it["type"] for it in found["output"]] == ["function_call"]


def test_logprobs_are_those_of_the_text() -> None:
    """Not those of thoughts and markup; of a character in several tokens, all."""

    def at(token: int) -> dict[str, Any]:
        return {"logprobs": (TokenLogprob(token, -0.5, ((token, -0.5), (66, -1.0))),)}

    script = playing(
        [event(ThoughtDelta("h"), **at(104))],
        [event(**at(60))],
        [event(TextDelta("a"), **at(97))],
        [event(**at(195))],
        [event(TextDelta("ö"), **at(182))],
        [event(finish="stop", **at(0))],
    )
    body = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    found = respond(Service(script), **body).json()
    entries = found["output"][1]["content"][0]["logprobs"]
    assert [entry["token"] for entry in entries] == ["<", "a", "Ã", "¶"]
    assert entries[1]["top_logprobs"][1]["logprob"] == -1.0
    events = streamed(respond(Service(script), stream=True, **body).text)
    deltas = [it["logprobs"] for it in events if it["type"].endswith("output_text.delta")]
    assert [len(delta) for delta in deltas] == [2, 2]
    done = [it for it in events if it["type"].endswith("output_text.done")]
    assert done[0]["logprobs"] == entries
    Response.model_validate(found)


# -- keeping alive, and failing -------------------------------------------------------------------


def test_a_long_wait_is_filled_with_progress() -> None:
    """Data, since comments do not count for Codex, and none before response.created. B54."""

    async def work() -> str:
        gate = asyncio.Event()
        script = playing(gate, *steps([TextDelta("Hi.")]))
        service = Service(script, options=options(keepalive_seconds=0.01))
        async with served(service) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = {"input": "Hi", "stream": True}
            writer.write(request_bytes("/v1/responses", body, connection="close"))
            seen = b""
            while seen.count(b"event: response.in_progress") < 4:
                seen += await reader.read(1 << 16)
            gate.set()
            seen += await reader.read()
            writer.close()
            return seen.decode()

    said = run(work())
    found = [line for line in said.splitlines() if line.startswith("event: ")]
    assert found[0] == "event: response.created"
    assert found[-1] == "event: response.completed"
    waits = [it for it in found if it == "event: response.in_progress"]
    assert found[1 : 1 + len(waits)] == waits


def test_the_sdk_follows_a_stream_with_waits_inside() -> None:
    """Progress is told between the pieces of an item too. B54."""

    async def work() -> tuple[list[Any], Any]:
        gate = asyncio.Event()
        said = steps(THOUGHTFUL, "tool_calls")
        script = playing(*said[:4], gate, *said[4:])
        service = Service(script, options=options(keepalive_seconds=0.01))
        async with served(service) as port:
            url = f"http://127.0.0.1:{port}/v1"
            async with AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as client:
                tools: Any = TOOLS
                found = []
                asked = {"model": "test/model", "input": "Hi", "tools": tools}
                async with client.responses.stream(**asked) as stream:
                    async for it in stream:
                        found.append(it)
                        begun = any(it.type == "response.output_text.delta" for it in found)
                        if begun and it.type == "response.in_progress":
                            gate.set()
                    return found, await stream.get_final_response()

    found, final = run(work())
    assert final.output_text == "\n\nI look."
    assert [it.type for it in final.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert final.output[2].arguments == '{"at": "here"}'
    texts = [it.snapshot for it in found if it.type == "response.output_text.delta"]
    assert texts == ["\n\nI ", "\n\nI look."]


def test_a_stream_that_fails_says_so() -> None:
    """The last event is `response.failed`, with what was said so far as incomplete. B48a."""
    service = Service(playing([event(TextDelta("Once"))], failing(503, "engine_restarted")))
    events = streamed(respond(service, stream=True).text)
    assert kinds(events)[-1] == "failed"
    response = events[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": "It went wrong."}
    assert response["output"][0]["status"] == "incomplete"
    EVENT.validate_python(events[-1])


def test_too_long_a_conversation_is_a_stream_that_failed() -> None:
    """Codex compacts its history at this, and gives up at a 400. B50."""
    error = failing(400, "context_length_exceeded")
    error.param = "messages"
    refusing = Service(lambda job: error)
    reply = respond(refusing, stream=True)
    assert reply.status_code == 200
    events = streamed(reply.text)
    assert kinds(events) == ["created", "failed"]
    assert events[0]["response"]["id"] == events[1]["response"]["id"]
    assert events[1]["response"]["error"]["code"] == "context_length_exceeded"
    reply = respond(refusing)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert reply.json()["error"]["param"] == "input"


def test_other_refusals_are_errors_of_http() -> None:
    for stream in (False, True):
        reply = respond(Service(lambda job: failing(429, "queue_full")), stream=stream)
        assert reply.status_code == 429
        assert reply.json()["error"]["code"] == "queue_full"


def test_a_websocket_is_declined_in_the_one_way_codex_understands() -> None:
    async def work() -> bytes:
        async with served(Service()) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            more = {"connection": "Upgrade", "upgrade": "websocket"}
            writer.write(request_bytes("/v1/responses", **more))
            line = await reader.readline()
            writer.close()
            return line

    assert b" 426 " in run(work())
    plain = ask(Service(), "GET", "/v1/responses")
    assert (plain.status_code, plain.headers["allow"]) == (405, "POST")


# -- fields ---------------------------------------------------------------------------------------

REFUSED: dict[str, Any] = {
    "background": True,
    "conversation": "conv_1",
    "prompt": {"id": "p"},
    "n": 2,
    "response_format": {"type": "json_object"},
    "max_output_tokens": 0,
    "temperature": -1,
    "top_logprobs": 21,
    "text": {"format": {"type": "xml"}},
    "include": "all",
    "instructions": 3,
    "truncation": "most",
    "reasoning": {"summary": "long"},
}


def test_what_cannot_be_obeyed_is_refused_by_name() -> None:
    """A form of the answer among it. B71."""
    talk = Talk(Service())
    for name, value in REFUSED.items():
        reply = talk.respond(**{name: value})
        assert reply.status_code == 400
        assert reply.json()["error"]["param"].split(".")[0].split("[")[0] == name


def test_hints_and_unknown_fields_are_no_reason_to_refuse() -> None:
    body = {
        "background": False,
        "client_metadata": {"a": "b"},
        "include": ["file_search_call.results"],
        "max_tool_calls": 3,
        "prompt_cache_key": "k",
        "service_tier": "flex",
        "stream_options": {"include_obfuscation": False},
        "text": {"verbosity": "low"},
        "truncation": "auto",
        "something_new": 1,
        "user": "u",
    }
    reply = respond(replying(TextDelta("Hi.")), **body)
    assert reply.status_code == 200
    assert reply.json()["truncation"] == "disabled"  # what happens, not what was asked


def test_settings_reach_the_engine() -> None:
    service = replying(TextDelta("Hi."))
    body = {"max_output_tokens": 7, "temperature": 0.5, "top_p": 0.9, "ignore_eos": True}
    respond(service, **body, seed=3, stop=["x"], top_logprobs=2, timeout=9)
    [job] = service.jobs
    params = job.params
    assert (params.max_tokens, params.temperature, params.top_p) == (7, 0.5, 0.9)
    assert (params.ignore_eos, params.seed, params.stop, params.logprobs) == (True, 3, ("x",), 2)
    assert (job.api, job.timeout, job.reads, job.stream) == ("responses", 9, True, False)
