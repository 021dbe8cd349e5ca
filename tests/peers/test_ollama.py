"""Ollama's own client finds what it relies on: streams, counts, tools, pictures, forms, models."""

from __future__ import annotations

import io
import json
import math
import time
from typing import Any

import ollama
import openai
import pytest

from tests.depth import often, one_in
from tests.drawings import see
from tests.peers.conftest import MODEL
from tests.server.server_process import PATIENCE, Server

SUM = [{"role": "user", "content": "What is 3 + 4?"}]
SURE = {"temperature": 0}
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["answer"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
ASKED_WEATHER = [{"role": "user", "content": "What is the weather in Oslo?"}]


@pytest.fixture(scope="module")
def ollamas(server: Server) -> ollama.Client:
    return ollama.Client(host=server.url, timeout=PATIENCE)


def said(client: openai.OpenAI, messages: list[Any], **fields: Any) -> Any:
    """The same question by OpenAI's API."""
    return client.chat.completions.create(model=MODEL, messages=messages, temperature=0, **fields)


# -- chat --------------------------------------------------------------------------------------


def test_a_chat_says_what_openais_api_says(ollamas: ollama.Client, client: openai.OpenAI) -> None:
    reply = ollamas.chat(model=MODEL, messages=SUM, options=SURE)
    expected = said(client, SUM)
    assert reply.message.content == expected.choices[0].message.content
    assert (reply.model, reply.done, reply.done_reason) == (MODEL, True, "stop")
    assert reply.prompt_eval_count == expected.usage.prompt_tokens
    assert reply.eval_count == expected.usage.completion_tokens


def test_a_stream_of_lines_adds_up_to_the_whole(ollamas: ollama.Client) -> None:
    # So many that no reader is slow enough to find all of them at once.
    words = "apple river stone cloud window garden silver morning paper bridge yellow forest " * 4
    long = [{"role": "user", "content": f"Repeat exactly: {words}"}]
    some = {**SURE, "num_predict": 120}  # it would go on for thousands
    whole = ollamas.chat(model=MODEL, messages=long, options=some)
    pieces = list(ollamas.chat(model=MODEL, messages=long, options=some, stream=True))
    assert len(pieces) > 2
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(piece.message.role == "assistant" for piece in pieces)
    assert (pieces[-1].eval_count, pieces[-1].done_reason) == (whole.eval_count, "length")


def test_a_body_that_does_not_say_is_answered_by_a_stream(server: Server) -> None:
    reply = server.http.post("/api/chat", json={"model": MODEL, "messages": SUM, "stream": None})
    assert reply.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in reply.text.splitlines()]
    assert lines[-1]["done"] is True
    assert reply.text.endswith("\n")


@pytest.mark.parametrize("stream", [False, True])
def test_durations_are_nanoseconds_that_add_up(ollamas: ollama.Client, stream: bool) -> None:
    """By how long the client waited it is no other unit."""
    began = time.perf_counter_ns()
    made: Any = ollamas.chat(model=MODEL, messages=SUM, options=SURE, stream=stream)
    last = list(made)[-1] if stream else made
    waited = time.perf_counter_ns() - began
    assert waited / 999 < last.total_duration <= waited
    parts = (last.load_duration, last.prompt_eval_duration, last.eval_duration)
    assert all(isinstance(part, int) and part > 0 for part in parts)
    assert last.total_duration == pytest.approx(sum(parts), abs=3)
    assert last.created_at.endswith("Z")


def test_a_limit_ends_a_reply(ollamas: ollama.Client) -> None:
    reply = ollamas.chat(model=MODEL, messages=SUM, options={"num_predict": 2, **SURE})
    assert (reply.done_reason, reply.eval_count) == ("length", 2)


@pytest.mark.parametrize("limit", [-1, -2])
def test_a_limit_below_zero_is_none(ollamas: ollama.Client, limit: int) -> None:
    reply = ollamas.chat(model=MODEL, messages=SUM, options={"num_predict": limit, **SURE})
    assert reply.done_reason == "stop"


def test_a_stop_ends_a_reply(ollamas: ollama.Client) -> None:
    reply = ollamas.chat(model=MODEL, messages=SUM, options={"stop": ["="], **SURE})
    assert "=" not in (reply.message.content or "")
    assert reply.done_reason == "stop"


@pytest.mark.long
def test_a_seed_gives_the_same_reply_again(ollamas: ollama.Client) -> None:
    hot = {"temperature": 5, "seed": 5, "num_predict": 24}
    story = [{"role": "user", "content": "Tell me a story."}]
    texts = [ollamas.chat(model=MODEL, messages=story, options=hot).message.content for _ in "ab"]
    assert texts[0] == texts[1]
    other = ollamas.chat(model=MODEL, messages=story, options={**hot, "seed": 6}).message.content
    assert other != texts[0]


@pytest.mark.long
def test_a_penalty_has_its_own_name(ollamas: ollama.Client, client: openai.OpenAI) -> None:
    options = {"repeat_penalty": 5.0, "num_predict": 16, **SURE}
    reply = ollamas.chat(model=MODEL, messages=SUM, options=options)
    expected = said(client, SUM, max_tokens=16, extra_body={"repetition_penalty": 5.0})
    assert reply.message.content == expected.choices[0].message.content
    assert reply.message.content != said(client, SUM).choices[0].message.content


@pytest.mark.parametrize("stream", one_in(2, [False, True]))
def test_thoughts_stand_beside_the_text(ollamas: ollama.Client, stream: bool) -> None:
    made: Any = ollamas.chat(model=MODEL, messages=SUM, think=True, options=SURE, stream=stream)
    messages = [piece.message for piece in made] if stream else [made.message]
    thoughts = "".join(message.thinking or "" for message in messages)
    text = "".join(message.content or "" for message in messages)
    assert thoughts
    assert text
    assert thoughts not in text
    silent = ollamas.chat(model=MODEL, messages=SUM, think=False, options=SURE)
    assert not silent.message.thinking


@pytest.mark.parametrize("stream", one_in(2, [False, True]))
def test_a_call_comes_whole(ollamas: ollama.Client, stream: bool) -> None:
    made: Any = ollamas.chat(
        model=MODEL, messages=ASKED_WEATHER, tools=[WEATHER], options=SURE, stream=stream
    )
    messages = [piece.message for piece in made] if stream else [made.message]
    [call] = [call for message in messages for call in message.tool_calls or ()]
    assert call.function.name == "get_weather"
    assert call.function.arguments == {"city": "Oslo"}


def test_a_function_of_python_is_a_tool(ollamas: ollama.Client) -> None:
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: The city.
        """
        return city

    reply = ollamas.chat(model=MODEL, messages=ASKED_WEATHER, tools=[get_weather], options=SURE)
    assert [call.function.name for call in reply.message.tool_calls or ()] == ["get_weather"]


def test_a_result_finds_its_call(server: Server, client: openai.OpenAI) -> None:
    """Calls have no ids in this API; results name the tool. The package would write the tool's
    schema in another order."""
    function: dict[str, Any] = {"name": "get_weather", "arguments": {"city": "Oslo"}}
    history = [
        *ASKED_WEATHER,
        {"role": "assistant", "content": "", "tool_calls": [{"function": function}]},
        {"role": "tool", "tool_name": "get_weather", "content": "Snow, -3 degrees."},
    ]
    body = {"messages": history, "tools": [WEATHER], "options": SURE, "stream": False}
    reply = server.http.post("/api/chat", json=body).raise_for_status().json()
    written = {**function, "arguments": json.dumps(function["arguments"])}
    call = {"id": "c", "type": "function", "function": written}
    theirs = [
        *ASKED_WEATHER,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Snow, -3 degrees."},
    ]
    expected = said(client, theirs, tools=[WEATHER])
    assert reply["message"]["content"] == expected.choices[0].message.content
    assert reply["prompt_eval_count"] == expected.usage.prompt_tokens


@pytest.mark.parametrize("colour", one_in(2, ["red", "blue"]))
def test_a_picture_is_seen(ollamas: ollama.Client, colour: str) -> None:
    file = io.BytesIO()
    see("square", colour).save(file, "PNG")
    asked = {"role": "user", "content": "What colour is it?", "images": [file.getvalue()]}
    reply = ollamas.chat(model=MODEL, messages=[asked], options=SURE)
    assert colour in (reply.message.content or "")
    plain = ollamas.generate(
        model=MODEL, prompt="What colour is it?", images=[file.getvalue()], options=SURE
    )
    assert plain.response == reply.message.content


def test_the_beginning_of_a_reply_is_gone_on_with(
    ollamas: ollama.Client, client: openai.OpenAI
) -> None:
    begun = [*SUM, {"role": "assistant", "content": "3 + 4 ="}]
    reply = ollamas.chat(model=MODEL, messages=begun, options=SURE)
    go_on = {"continue_final_message": True, "add_generation_prompt": False}
    expected = said(client, begun, extra_body=go_on)
    assert reply.message.content == expected.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_are_listed(server: Server, stream: bool) -> None:
    body = {"model": MODEL, "messages": SUM, "options": {"num_predict": 4, **SURE}}
    asked = {**body, "logprobs": True, "top_logprobs": 2, "stream": stream}
    reply = server.http.post("/api/chat", json=asked).raise_for_status()
    pieces = [json.loads(line) for line in reply.text.splitlines()]
    listed = [entry for piece in pieces for entry in piece.get("logprobs", ())]
    assert len(listed) == 4
    assert all(len(entry["top_logprobs"]) == 2 for entry in listed)


# -- generate ----------------------------------------------------------------------------------


def test_a_prompt_is_a_conversation_of_one_turn(
    ollamas: ollama.Client, client: openai.OpenAI
) -> None:
    reply = ollamas.generate(
        model=MODEL, prompt=SUM[0]["content"], system="You are kind.", options=SURE
    )
    expected = said(client, [{"role": "system", "content": "You are kind."}, *SUM])
    assert reply.response == expected.choices[0].message.content
    assert reply.prompt_eval_count == expected.usage.prompt_tokens
    pieces = ollamas.generate(
        model=MODEL, prompt=SUM[0]["content"], system="You are kind.", options=SURE, stream=True
    )
    assert "".join(piece.response for piece in pieces) == reply.response


def test_a_raw_prompt_is_no_conversation(ollamas: ollama.Client, client: openai.OpenAI) -> None:
    options = {"num_predict": 8, **SURE}
    reply = ollamas.generate(model=MODEL, prompt="Once upon", raw=True, options=options)
    expected = client.completions.create(
        model=MODEL, prompt="Once upon", max_tokens=8, temperature=0
    )
    assert reply.response == expected.choices[0].text


@pytest.mark.parametrize("form", ["json", SCHEMA], ids=["json", "schema"])
@pytest.mark.parametrize("api", often(["chat", "generate", "raw"], "chat"))
def test_a_reply_has_its_form(ollamas: ollama.Client, api: str, form: Any) -> None:
    """So hot that a model which may say anything says no JSON. B71."""
    hot = {"temperature": 2, "seed": 3, "num_predict": 200}
    if api == "chat":
        text = ollamas.chat(model=MODEL, messages=SUM, format=form, options=hot).message.content
    else:
        raw = api == "raw"
        text = ollamas.generate(
            model=MODEL, prompt=SUM[0]["content"], format=form, raw=raw, options=hot
        ).response
    assert text is not None
    assert text.lstrip().startswith("{")
    if form is SCHEMA:
        assert list(json.loads(text)) == ["answer"]


def test_an_empty_prompt_loads_the_model(ollamas: ollama.Client) -> None:
    made = ollamas.generate(model=MODEL, prompt="")
    assert (made.done, made.done_reason, made.response) == (True, "load", "")
    assert ollamas.chat(model=MODEL, messages=[]).done_reason == "load"


def test_the_only_model_is_not_unloaded(ollamas: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="one model") as refused:
        ollamas.generate(model=MODEL, prompt="", keep_alive=0)
    assert refused.value.status_code == 409


# -- what is refused ---------------------------------------------------------------------------

REFUSED = {
    "options.repeat_last_n": {"options": {"repeat_last_n": 8, "frequency_penalty": 0.5}},
    "options.mirostat": {"options": {"mirostat": 2}},
    "options.num_predic": {"options": {"num_predic": 3}},
    "options.temperature": {"options": {"temperature": "hot"}},
    "options.penalize_newline": {"options": {"penalize_newline": False}},
    "context": {"context": [1, 2, 3]},
    "template": {"template": "{{ .Prompt }}"},
    "suffix": {"suffix": "the end"},
    "format": {"format": "yaml"},
    "images[0]": {"images": [3]},
    "top_logprobs": {"top_logprobs": 3},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_obeyed_is_refused_by_name(server: Server, name: str) -> None:
    body = {"model": MODEL, "prompt": "Hello", "stream": False, **REFUSED[name]}
    reply = server.http.post("/api/generate", json=body)
    assert reply.status_code == 400
    assert list(reply.json()) == ["error"]
    assert reply.json()["error"].startswith(f"{name} ")


def test_what_is_off_or_only_a_hint_is_no_reason_to_refuse(ollamas: ollama.Client) -> None:
    idle = {"typical_p": 1.0, "tfs_z": 1, "mirostat": 0, "repeat_last_n": 64, "seed": -1}
    machine = {"num_ctx": 4096, "num_gpu": 1, "num_thread": 8, "use_mmap": True, "num_keep": 5}
    reply = ollamas.chat(
        model=MODEL, messages=SUM, keep_alive="5m", options={**idle, **machine, **SURE}
    )
    assert reply.done_reason == "stop"


MISTAKES: dict[str, Any] = {
    "messages": "Hello",
    "messages[0].role": [{"role": "king", "content": "Hello"}],
    "messages[0].content": [{"role": "user", "content": 3}],
    "messages[0].images": [{"role": "user", "content": "", "images": "x"}],
    "messages[0].tool_calls[0].function": [{"role": "assistant", "tool_calls": [{}]}],
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_message_is_told_where_it_is(server: Server, name: str) -> None:
    reply = server.http.post("/api/chat", json={"model": MODEL, "messages": MISTAKES[name]})
    assert reply.status_code == 400
    assert reply.json()["error"].startswith(f"{name} must be ")


def test_an_unknown_model_is_a_404(ollamas: ollama.Client) -> None:
    """By which clients know that they have to pull it."""
    with pytest.raises(ollama.ResponseError, match="nobody") as refused:
        ollamas.chat(model="nobody", messages=SUM)
    assert refused.value.status_code == 404
    with pytest.raises(ollama.ResponseError):
        list(ollamas.chat(model="nobody:latest", messages=SUM, stream=True))


def test_a_route_that_is_not_there_is_told_in_the_same_form(server: Server) -> None:
    reply = server.http.post("/api/create", json={})
    assert reply.status_code == 404
    assert isinstance(reply.json()["error"], str)


# -- embeddings --------------------------------------------------------------------------------


def test_texts_have_vectors(ollamas: ollama.Client, client: openai.OpenAI) -> None:
    texts = ["a bushel", "of grain"]
    reply = ollamas.embed(model=MODEL, input=texts)
    expected = client.embeddings.create(model=MODEL, input=texts)
    for ours, theirs in zip(reply.embeddings, expected.data, strict=True):
        assert list(ours) == pytest.approx(theirs.embedding, abs=1e-6)
    assert reply.prompt_eval_count == expected.usage.prompt_tokens
    assert (reply.total_duration or 0) > 0
    alone = ollamas.embeddings(model=MODEL, prompt=texts[1])
    assert list(alone.embedding) == pytest.approx(list(reply.embeddings[1]), abs=1e-5)


def test_fewer_dimensions_are_of_length_one(ollamas: ollama.Client) -> None:
    [vector] = ollamas.embed(model=MODEL, input="a bushel", dimensions=8).embeddings
    assert len(vector) == 8
    assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("given", [[], "", ["a", 3]], ids=str)
def test_what_is_no_text_has_none(server: Server, given: Any) -> None:
    reply = server.http.post("/api/embed", json={"model": MODEL, "input": given})
    assert reply.status_code == 400
    assert reply.json()["error"].startswith("input")


# -- models ------------------------------------------------------------------------------------


def test_what_is_served_is_listed(ollamas: ollama.Client) -> None:
    [card] = ollamas.list().models
    assert card.model == MODEL
    assert card.details is not None
    assert card.details.family == "qwen3_5"
    assert (card.size or 0) > 100_000
    assert len(card.digest or "") == 64


def test_what_is_loaded_is_listed(ollamas: ollama.Client) -> None:
    [card] = ollamas.ps().models
    assert card.model == MODEL
    assert card.expires_at is not None
    assert (card.size_vram or 0) > 0
    assert (card.context_length or 0) > 1000


@pytest.mark.parametrize("name", [MODEL, f"{MODEL}:latest"])
def test_a_model_tells_what_it_can_do(ollamas: ollama.Client, server: Server, name: str) -> None:
    told = ollamas.show(name)
    assert set(told.capabilities or ()) == {"completion", "vision", "tools", "thinking"}
    context = server.http.get("/v1/models").json()["data"][0]["max_model_len"]
    assert told.modelinfo is not None
    family = told.modelinfo["general.architecture"]
    assert told.modelinfo[f"{family}.context_length"] == context
    assert "message" in (told.template or "")


def test_a_name_with_its_tag_is_served(ollamas: ollama.Client) -> None:
    reply = ollamas.chat(model=f"{MODEL}:latest", messages=SUM, options=SURE)
    assert reply.model == MODEL


def test_a_version_is_told(server: Server) -> None:
    version = server.http.get("/api/version").json()["version"]
    assert [int(part) for part in version.split(".")] >= [0, 12, 0]
