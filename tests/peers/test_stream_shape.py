"""The shape of streams: what begins, goes on and ends them, in the four APIs that have any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peers.test_fields import SUM, WEATHER
from tests.server.server_process import Server

ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": SUM, "max_tokens": 12},
    "/v1/completions": {"prompt": "3 + 4 =", "max_tokens": 12},
    "/v1/responses": {"input": "What is 3 + 4?", "max_output_tokens": 12},
    "/v1/messages": {"messages": SUM, "max_tokens": 12},
}
ROUTES = pytest.mark.parametrize("route", ASKED)
OPENAI = ("/v1/chat/completions", "/v1/completions")
CHUNKED = pytest.mark.parametrize("route", OPENAI)


def frames(server: Server, route: str, **more: Any) -> list[tuple[str, str]]:
    """(event, data) of every frame; the stream is one of events, whole, in UTF-8."""
    body = {"temperature": 0, **ASKED[route], **more, "stream": True}
    with server.http.stream("POST", route, json=body) as reply:
        text = reply.read().decode()
        assert reply.status_code == 200, text
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert "content-length" not in reply.headers
    assert text.endswith("\n\n")
    return [_frame(frame) for frame in text[:-2].split("\n\n") if not frame.startswith(":")]


def _frame(frame: str) -> tuple[str, str]:
    fields = dict(line.split(": ", 1) for line in frame.split("\n"))
    assert fields.keys() <= {"event", "data"}
    return fields.get("event", ""), fields["data"]


def objects(server: Server, route: str, **more: Any) -> list[dict[str, Any]]:
    told = [data for _, data in frames(server, route, **more)]
    return [json.loads(data) for data in told if data != "[DONE]"]


def said(route: str, events: list[dict[str, Any]]) -> str:
    return "".join(_pieces(route, events))


def _pieces(route: str, events: list[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        if route in OPENAI:
            for choice in event["choices"]:
                yield choice.get("text") or choice.get("delta", {}).get("content") or ""
        elif event["type"] == "response.output_text.delta":
            yield event["delta"]
        elif event["type"] == "content_block_delta":
            yield event["delta"]["text"]


def whole(server: Server, route: str, **more: Any) -> dict[str, Any]:
    body = {"temperature": 0, **ASKED[route], **more}
    return dict(server.http.post(route, json=body).raise_for_status().json())


def whole_text(route: str, reply: dict[str, Any]) -> str:
    if route == "/v1/responses":
        return str(reply["output"][0]["content"][0]["text"])
    if route == "/v1/messages":
        return str(reply["content"][0]["text"])
    choice = reply["choices"][0]
    return str(choice.get("text") or choice["message"]["content"])


@ROUTES
def test_a_stream_says_what_a_whole_reply_says(server: Server, route: str) -> None:
    text = said(route, objects(server, route))
    assert text
    assert text == whole_text(route, whole(server, route))


@CHUNKED
def test_chunks_end_with_done_and_have_no_names(server: Server, route: str) -> None:
    told = frames(server, route)
    assert told[-1] == ("", "[DONE]")
    assert [event for event, _ in told if event] == []
    assert [data for _, data in told[:-1] if data == "[DONE]"] == []


@pytest.mark.parametrize("route", ["/v1/responses", "/v1/messages"])
def test_events_are_named_by_their_type(server: Server, route: str) -> None:
    told = frames(server, route)
    assert [event for event, _ in told] == [json.loads(data)["type"] for _, data in told]


@CHUNKED
def test_chunks_of_a_reply_are_known_by_one_id(server: Server, route: str) -> None:
    chunks = objects(server, route)
    kind = "chat.completion.chunk" if "chat" in route else "text_completion"
    assert {(it["id"], it["created"], it["model"], it["object"]) for it in chunks} == {
        (chunks[0]["id"], chunks[0]["created"], "bushel:tiny", kind)
    }


@CHUNKED
def test_only_the_last_chunk_has_a_reason(server: Server, route: str) -> None:
    reasons = [it["choices"][0]["finish_reason"] for it in objects(server, route)]
    assert reasons[-1] in ("stop", "length")
    assert set(reasons[:-1]) == {None}


def test_the_role_comes_first_and_once(server: Server) -> None:
    deltas = [it["choices"][0]["delta"] for it in objects(server, "/v1/chat/completions")]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert not any("role" in delta for delta in deltas[1:])
    assert deltas[-1] == {}


@CHUNKED
def test_usage_comes_last_if_it_is_asked_for(server: Server, route: str) -> None:
    chunks = objects(server, route, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == []
    counted = whole(server, route)["usage"]
    told = chunks[-1]["usage"]
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert told[key] == counted[key]
    assert {it["usage"] for it in chunks[:-1]} == {None}
    assert not any("usage" in it for it in objects(server, route))


@CHUNKED
def test_usage_so_far_can_be_in_every_chunk(server: Server, route: str) -> None:
    asked = {"include_usage": True, "continuous_usage_stats": True}
    counts = [
        it["usage"]["completion_tokens"] for it in objects(server, route, stream_options=asked)
    ]
    assert counts == sorted(counts)
    assert counts[-1] > 0


@CHUNKED
def test_choices_are_told_by_their_index(server: Server, route: str) -> None:
    chunks = objects(server, route, n=3, temperature=1, seed=7)
    choices = [choice for it in chunks for choice in it["choices"]]
    assert {choice["index"] for choice in choices} == {0, 1, 2}
    ended = [choice["index"] for choice in choices if choice["finish_reason"]]
    assert sorted(ended) == [0, 1, 2]


def test_events_of_a_response_come_in_their_order(server: Server) -> None:
    events = objects(server, "/v1/responses")
    kinds = [it["type"] for it in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:-1] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    assert kinds[-1] in ("response.completed", "response.incomplete")
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert [it["sequence_number"] for it in events] == list(range(len(events)))


def test_the_last_event_of_a_response_is_the_whole_of_it(server: Server) -> None:
    last = objects(server, "/v1/responses")[-1]["response"]
    other = whole(server, "/v1/responses")
    assert last["output"][0]["content"] == other["output"][0]["content"]
    assert last["usage"]["output_tokens"] == other["usage"]["output_tokens"]
    assert last.keys() == other.keys()


def test_events_of_a_message_come_in_their_order(server: Server) -> None:
    events = objects(server, "/v1/messages")
    kinds = [it["type"] for it in events if it["type"] != "ping"]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    first = events[0]["message"]
    assert (first["content"], first["stop_reason"]) == ([], None)
    last = next(it for it in events if it["type"] == "message_delta")
    counted = whole(server, "/v1/messages")
    assert last["delta"]["stop_reason"] == counted["stop_reason"]
    assert last["usage"]["output_tokens"] == counted["usage"]["output_tokens"]
    assert first["usage"]["input_tokens"] == counted["usage"]["input_tokens"]


@pytest.mark.parametrize("route", OPENAI)
def test_a_stream_stops_before_its_stop(server: Server, route: str) -> None:
    text = said(route, objects(server, route))
    stop = text[len(text) // 2 :][:2]
    short = said(route, objects(server, route, stop=[stop]))
    assert short == text.partition(stop)[0]


@CHUNKED
def test_log_probabilities_belong_to_their_chunks(server: Server, route: str) -> None:
    wish = {"logprobs": True, "top_logprobs": 2} if "chat" in route else {"logprobs": 2}
    chunks = objects(server, route, **wish)
    found = [it["choices"][0]["logprobs"] for it in chunks]
    counted = whole(server, route)["usage"]["completion_tokens"]
    if "chat" in route:
        entries = [entry for it in found if it for entry in it["content"]]
        assert {len(entry["top_logprobs"]) for entry in entries} == {2}
    else:
        entries = [token for it in found if it for token in it["tokens"]]
    assert counted - 1 <= len(entries) <= counted


@ROUTES
@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"model": "no"}, {"top_p": "x"}])
def test_what_is_refused_is_no_stream(server: Server, route: str, wrong: dict[str, Any]) -> None:
    reply = server.http.post(route, json={**ASKED[route], **wrong, "stream": True})
    assert reply.status_code in (400, 404)
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["error"]["message"]


def test_a_call_in_chunks_begins_with_its_name(server: Server) -> None:
    asked = {"tools": WEATHER, "tool_choice": "required", "max_tokens": 60}
    chunks = objects(server, "/v1/chat/completions", **asked)
    calls = [call for it in chunks for call in it["choices"][0]["delta"].get("tool_calls", ())]
    assert calls[0]["type"] == "function"
    assert calls[0]["id"].startswith("call_")
    assert calls[0]["function"] == {"name": "get_weather", "arguments": ""}
    assert all(call.keys() == {"index", "function"} for call in calls[1:])
    json.loads("".join(call["function"]["arguments"] for call in calls))


def test_a_call_in_a_message_is_a_block_of_its_own(server: Server) -> None:
    tool = {"name": "get_weather", "input_schema": WEATHER[0]["function"]["parameters"]}
    asked = {"tools": [tool], "tool_choice": {"type": "any"}, "max_tokens": 60}
    events = objects(server, "/v1/messages", **asked)
    begun = next(it for it in events if it["type"] == "content_block_start")
    assert begun["content_block"]["type"] == "tool_use"
    assert begun["content_block"]["input"] == {}
    deltas = [it["delta"] for it in events if it["type"] == "content_block_delta"]
    assert {delta["type"] for delta in deltas} == {"input_json_delta"}
    json.loads("".join(delta["partial_json"] for delta in deltas))
