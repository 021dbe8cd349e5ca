"""OpenAI's own Python SDK asks `bushel serve` for responses."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from tests.drawings import see
from tests.llm.request_builders import data_url
from tests.server.compare_with_llm import MODEL, Caller, user
from tests.server.server_process import Server

SUM = user("What is 3 + 4?")
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": 24}
LOOK = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.fixture
def create(caller: Caller) -> Any:
    """As a function of anything: items here are plain dictionaries."""
    return caller.sdk.responses.create


def test_a_response_is_the_answer_that_chat_gives(caller: Caller, create: Any) -> None:
    found = create(input=SUM[0]["content"], **GREEDY)
    assert found.output_text == caller.chat(SUM, temperature=0, max_tokens=24).text
    assert found.status == "completed"
    assert found.model == MODEL
    usage = found.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert 0 <= usage.input_tokens_details.cached_tokens < usage.input_tokens


def test_a_stream_ends_with_the_same_response(caller: Caller, create: Any) -> None:
    expected = create(input=SUM, **GREEDY)
    stream: Any = caller.sdk.responses.stream
    with stream(input=SUM, **GREEDY) as events:
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        found = events.get_final_response()
    assert "".join(deltas) == found.output_text == expected.output_text
    assert found.usage.output_tokens == expected.usage.output_tokens
    plain = list(create(input=SUM, stream=True, **GREEDY))
    assert [it.sequence_number for it in plain] == list(range(len(plain)))
    assert plain[0].type == "response.created"
    assert plain[-1].type == "response.completed"
    assert plain[-1].response.output_text == expected.output_text


def test_a_reply_that_is_too_long_is_incomplete(create: Any) -> None:
    found = create(input="Tell me a story.", **{**GREEDY, "max_output_tokens": 3})
    assert found.status == "incomplete"
    assert found.incomplete_details.reason == "max_output_tokens"
    assert found.usage.output_tokens == 3


@pytest.mark.long
def test_a_conversation_goes_on_from_what_is_kept(caller: Caller, create: Any) -> None:
    """By both ways to refer to it, and as a client that keeps everything itself. B14."""
    said = [
        {"role": "system", "content": "The codeword is marmalade."},
        {"role": "user", "content": "My name is Ada."},
    ]
    question = {"role": "user", "content": "What is the codeword?"}
    first = create(input=said, **GREEDY)
    second = create(input=[question], previous_response_id=first.id, **GREEDY)
    references = [{"type": "item_reference", "id": it.id} for it in first.output]
    third = create(input=[*said, *references, question], **GREEDY)
    items = [it.to_dict() for it in first.output]
    fourth = create(input=[*said, *items, question], store=False, **GREEDY)
    assert "marmalade" in second.output_text
    assert second.output_text == third.output_text == fourth.output_text
    counts = {it.usage.input_tokens for it in (second, third, fourth)}
    assert len(counts) == 1
    assert caller.sdk.responses.retrieve(first.id) == first
    listed = caller.sdk.responses.input_items.list(second.id).data
    assert len(listed) == len(said) + len(first.output) + 1
    for one in (first, second, third):
        caller.sdk.responses.delete(one.id)
    for call in (lambda: caller.sdk.responses.retrieve(first.id), lambda: create(input=references)):
        with pytest.raises(openai.NotFoundError):
            call()
    with pytest.raises(openai.BadRequestError) as raised:
        create(input="Go on.", previous_response_id=fourth.id, **GREEDY)
    assert raised.value.code == "previous_response_not_found"


def test_a_picture_is_seen(create: Any) -> None:
    """The model names the colour of the picture in the input. B7."""
    url = data_url(see("square", "red"))
    content = [
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_text", "text": "What colour is it?"},
    ]
    assert "red" in create(input=[{"role": "user", "content": content}], **GREEDY).output_text


class Answer(BaseModel):
    """Bounded, so that a small model comes to an end."""

    model_config = {"extra": "forbid"}
    sure: bool
    colour: Literal["red", "blue"]


def test_parse_gives_an_object(caller: Caller) -> None:
    """Of a question whose free answer is none. B71."""
    parse: Any = caller.sdk.responses.parse
    found = parse(input=SUM, text_format=Answer, **{**GREEDY, "max_output_tokens": 64})
    assert found.status == "completed"
    assert isinstance(found.output_parsed, Answer)


def test_a_required_call_is_made_and_answered(caller: Caller, create: Any) -> None:
    """A call with arguments that fit, whole and streamed; its result is taken back. B23."""
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    body = {**GREEDY, "tools": [LOOK], "tool_choice": "required", "max_output_tokens": 96}
    found = create(input=asked, **body)
    [call] = [it for it in found.output if it.type == "function_call"]
    assert (call.name, call.status) == ("get_weather", "completed")
    assert set(json.loads(call.arguments)) == {"city"}
    stream: Any = caller.sdk.responses.stream
    with stream(input=asked, **body) as events:
        deltas = [event.delta for event in events if event.type.endswith("arguments.delta")]
    assert "".join(deltas) == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    again = create(input=[result], previous_response_id=found.id, tools=[LOOK], **GREEDY)
    assert again.status in ("completed", "incomplete")
    assert again.usage.input_tokens > found.usage.input_tokens


def test_logprobs_are_given_on_request(create: Any) -> None:
    body = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    found = create(input=SUM, **body, **GREEDY)
    [part] = found.output[-1].content
    assert "".join(logprob.token for logprob in part.logprobs) == part.text
    assert all(len(logprob.top_logprobs) == 2 for logprob in part.logprobs)


def test_the_warm_up_of_codex_is_answered(tiny: Server) -> None:
    reply = tiny.http.post("/v1/responses", json={"input": "", "max_output_tokens": 1})
    assert reply.status_code == 200
    assert reply.json()["usage"]["output_tokens"] == 1


def test_the_overflow_of_a_stream_is_a_failed_response(short: Server) -> None:
    """A stream ends with `response.failed`; without streaming it is a 400. B50."""
    body = {"input": "word " * 100, "stream": True}
    headers = {"authorization": "Bearer sesame"}
    reply = short.http.post("/v1/responses", json=body, headers=headers)
    assert reply.status_code == 200
    last = json.loads(reply.text.rstrip().splitlines()[-1].removeprefix("data: "))
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "context_length_exceeded"
    plain = short.http.post("/v1/responses", json={**body, "stream": False}, headers=headers)
    assert plain.status_code == 400
    assert plain.json()["error"]["param"] == "input"
