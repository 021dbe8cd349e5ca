"""Every documented field is honoured, or refused by its name."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import httpx
import pytest

from bushel.core import SamplingParams

from .scripted_service import Service, ask, chat, complete, options

HUGE = 10**400  # as many digits; JSON allows it


def error(reply: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert set(reply.json()) == {"error"}
    found: dict[str, Any] = reply.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


# -- honoured ----------------------------------------------------------------------------------


def test_every_sampling_field_reaches_the_engine() -> None:
    service = Service()
    body = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "seed": -7,
        "n": 2,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "logit_bias": {"50256": -100, "7": 1.5},
        "min_tokens": 3,
        "ignore_eos": True,
        "stop": ["\n", "END"],
        "stop_token_ids": [5],
        "max_tokens": 77,
    }
    assert chat(service, **body, logprobs=True, top_logprobs=4).status_code == 200
    assert complete(service, **body, logprobs=4).status_code == 200
    bias = {50256: -100.0, 7: 1.5}
    plain = {**body, "logit_bias": bias, "stop": ("\n", "END"), "logprobs": 4}
    assert [job.params for job in service.jobs] == [SamplingParams(**plain)] * 2  # type: ignore[arg-type]


def test_the_newer_name_of_the_token_limit_wins() -> None:
    service = Service()
    chat(service, max_tokens=5, max_completion_tokens=9)
    chat(service, max_completion_tokens=9)
    chat(service, max_tokens=5)
    assert [job.params.max_tokens for job in service.jobs] == [9, 9, 5]


def test_one_stop_string_and_a_timeout() -> None:
    service = Service()
    chat(service, stop="END", timeout=2.5)
    assert service.jobs[0].params.stop == ("END",)
    assert service.jobs[0].timeout == 2.5


def test_null_means_absent_for_every_optional_field() -> None:
    from bushel.server.openai.chat.schema import ChatRequest
    from bushel.server.openai.completions.schema import CompletionRequest

    service = Service()
    nulls = {name: None for name in ChatRequest.model_fields if name != "messages"}
    assert chat(service, **nulls).status_code == 200
    nulls = {name: None for name in CompletionRequest.model_fields if name != "prompt"}
    assert complete(service, **nulls).status_code == 200
    assert [job.params for job in service.jobs] == [SamplingParams()] * 2


@pytest.mark.parametrize(
    "harmless",
    [
        {"tools": []},
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"modalities": ["text"]},
        {"parallel_tool_calls": True},
        {"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {"prompt_cache_key": "k", "safety_identifier": "s"},
        {"reasoning_effort": "low"},
        {"stream_options": {"include_usage": True}},
        {"max_tokens": 1_000_000_000},
        {"stop": []},
    ],
    ids=str,
)
def test_hints_and_empty_fields_are_taken(harmless: dict[str, Any]) -> None:
    """A long limit is no error, since the engine ends a reply with its context. B50."""
    assert chat(Service(), **harmless).status_code == 200


def test_a_template_option_arrives() -> None:
    service = Service()
    chat(service, chat_template_kwargs={"enable_thinking": False})
    assert service.jobs[0].request["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"reasoning_effort": "low"}, {"effort": "low"}),
        ({"reasoning_effort": "none"}, {"enabled": False}),
        ({"enable_thinking": True, "thinking_budget": 9}, {"enabled": True, "budget": 9}),
        ({"reasoning": {"effort": "high", "max_tokens": 5}}, {"effort": "high", "budget": 5}),
        ({"reasoning": {"enabled": False}}, {"enabled": False}),
        ({"thinking": {"type": "disabled"}}, {"enabled": False}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 7}},
            {"enabled": True, "budget": 7},
        ),
    ],
    ids=str,
)
def test_thinking_is_asked_for_in_many_ways(said: dict[str, Any], meant: dict[str, Any]) -> None:
    service = Service()
    assert chat(service, **said).status_code == 200
    assert service.jobs[0].request["thinking"] == meant


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
GBNF = 'root ::= "a" | "b"'
TAG = {"structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f"]}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            {"json_schema": SCHEMA},
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            {"json_object": True},
        ),
        ({"guided_json": SCHEMA}, {"json_schema": SCHEMA}),
        ({"guided_json": '{"type": "string"}'}, {"json_schema": {"type": "string"}}),
        ({"guided_regex": "a+"}, {"regex": "a+"}),
        ({"guided_choice": ["a", "b"]}, {"choice": ["a", "b"]}),
        ({"guided_grammar": 'start: "a"'}, {"grammar": 'start: "a"'}),
        ({"structured_outputs": {"json": SCHEMA}}, {"json_schema": SCHEMA}),
        ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
        ({"structured_outputs": {"structural_tag": TAG}}, {"structural_tag": TAG}),
        ({"structured_outputs": {}, "guided_regex": "a+"}, {"regex": "a+"}),
        ({"structured_outputs": {"json_object": True, "backend": "x"}}, {"json_object": True}),
        ({"guided_decoding": {"choice": ["a"], "backend": "x"}}, {"choice": ["a"]}),
        ({"guided_decoding": {"grammar": GBNF}}, {"grammar": GBNF}),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, {"json_schema": SCHEMA}),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, {"json_schema": SCHEMA}),
        ({"response_format": {"type": "structural_tag", **TAG}}, {"structural_tag": TAG}),
        ({"grammar": GBNF}, {"grammar": GBNF}),
        ({"ebnf": GBNF}, {"grammar": GBNF}),
        ({"json_schema": SCHEMA}, {"json_schema": SCHEMA}),
        ({"regex": "a+"}, {"regex": "a+"}),
        ({"structural_tag": json.dumps(TAG)}, {"structural_tag": TAG}),
    ],
    ids=str,
)
@pytest.mark.parametrize("ask", [chat, complete], ids=["chat", "completion"])
def test_an_answer_can_be_held_to_a_form(
    ask: Any, said: dict[str, Any], meant: dict[str, Any]
) -> None:
    """By whatever name a client of another server asks for it. B71."""
    service = Service()
    assert ask(service, **said).status_code == 200
    assert service.jobs[0].request["shape"] == meant


@pytest.mark.parametrize("said", [{"guided_choice": ["a"]}, {"ebnf": GBNF}, {"json_schema": {}}])
def test_an_answer_is_held_to_one_form_only(said: dict[str, Any]) -> None:
    found = error(chat(Service(), guided_regex="a", **said))
    assert "one form only" in found["message"]


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ({"structured_outputs": {"json": "no JSON"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json_object": "yes"}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"whitespace_pattern": "x"}}, "structured_outputs.whitespace"),
        ({"guided_decoding": {"structural_tag": "{"}}, "guided_decoding.structural_tag"),
        ({"response_format": {"type": "structural_tag"}}, "response_format"),
        ({"guided_whitespace_pattern": "x"}, "guided_whitespace_pattern"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_form_is_told_by_its_own_name(
    said: dict[str, Any], param: str
) -> None:
    found = error(chat(Service(), **said))
    assert found["param"].startswith(param)
    assert param in found["message"]


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "g", "description": "Does.", "strict": True}}
NO_ARGUMENTS = {"type": "object", "properties": {}}


def told(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_tools_reach_the_model() -> None:
    service = Service()
    assert chat(service, tools=[TOOL, OTHER], parallel_tool_calls=False).status_code == 200
    request = service.jobs[0].request
    assert request["tools"] == [
        TOOL,
        {"type": "function", "function": {**OTHER["function"], "parameters": NO_ARGUMENTS}},  # type: ignore[dict-item]
    ]
    assert request["parallel"] is False
    assert "tool_choice" not in request


@pytest.mark.parametrize(
    ("choice", "names", "meant"),
    [
        ("auto", ["f", "g"], "auto"),
        ("required", ["f", "g"], "required"),
        (told("g"), ["f", "g"], {"name": "g"}),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [told("f")]}},
         ["f"], "auto"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [told("g")]}},
         ["g"], "required"),
    ],
    ids=str,
)  # fmt: skip
def test_a_tool_choice_is_passed_on(choice: Any, names: list[str], meant: Any) -> None:
    service = Service()
    assert chat(service, tools=[TOOL, OTHER], tool_choice=choice).status_code == 200
    request = service.jobs[0].request
    assert [tool["function"]["name"] for tool in request["tools"]] == names
    assert request["tool_choice"] == meant


def test_no_tools_are_offered_where_none_may_be_called() -> None:
    service = Service()
    assert chat(service, tools=[TOOL], tool_choice="none").status_code == 200
    assert "tools" not in service.jobs[0].request


def test_tools_that_only_another_server_can_run_are_left_out() -> None:
    service = Service()
    assert chat(service, tools=[{"type": "web_search"}, TOOL]).status_code == 200
    assert service.jobs[0].request["tools"] == [TOOL]


def test_a_reply_can_continue_the_last_message() -> None:
    service = Service()
    chat(service, add_generation_prompt=False, continue_final_message=True)
    assert service.jobs[0].request["chat_template_kwargs"] == {
        "add_generation_prompt": False,
        "continue_final_message": True,
    }


def test_an_unknown_key_is_ignored_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    service = Service()
    assert chat(service, quite_unheard_of=1).status_code == 200
    assert chat(service, quite_unheard_of=2).status_code == 200
    assert [
        record.getMessage()
        for record in caplog.records
        if "quite_unheard_of" in record.getMessage()
    ] == ["Ignored the request field 'quite_unheard_of': it is not known."]


# -- refused by name ---------------------------------------------------------------------------

REFUSED: list[tuple[str, Any]] = [
    ("tools", [{"type": "function"}]),
    ("tools", [TOOL, {"type": "function", "function": {"name": "a b"}}]),
    ("tools", [{"type": "function", "function": {"name": "f", "parameters": []}}]),
    ("tool_choice", "required"),
    ("tool_choice", "sometimes"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}),
    ("functions", [{"name": "a b"}]),
    ("function_call", "sometimes"),
    ("function_call", {"name": "f"}),
    ("response_format", {"type": "xml"}),
    ("response_format", {"type": "json_schema"}),
    ("modalities", ["text", "audio"]),
    ("audio", {"voice": "alloy", "format": "mp3"}),
    ("prediction", {"type": "content"}),
    ("prediction", {"type": "image", "content": "x"}),
    ("prediction", "x"),
    ("web_search_options", {"search_context_size": "low"}),
    ("moderation", {"model": "x"}),
    ("chat_template", "{{ messages }}"),
    ("documents", [{"text": "x"}]),
    ("guided_json", "no JSON"),
    ("guided_regex", 5),
    ("structured_outputs", {"choice": "a"}),
    ("use_beam_search", True),
    ("bad_words", [""]),
    ("bad_words", "x"),
    ("allowed_token_ids", []),
    ("skip_special_tokens", 0),
    ("speculate", "no"),
    ("include_stop_str_in_output", "yes"),
    ("truncate_prompt_tokens", 0),
    ("prompt_logprobs", 21),
    ("dry_sequence_breakers", [1]),
    ("mirostat", 2),
    ("dynatemp_range", 0.5),
    ("presence_context_size", 20),
    ("echo", True),
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=str)
def test_what_chat_cannot_do_is_refused_by_name(name: str, value: Any) -> None:
    service = Service()
    found = error(chat(service, **{name: value}))
    assert name in found["message"]
    assert found["param"].split(".")[0].split("[")[0] == name
    assert found["type"] == "invalid_request_error"
    assert service.jobs == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("suffix", 5), ("best_of", 3), ("response_format", {"type": "xml"})],
    ids=str,
)
def test_what_completions_cannot_do_is_refused_by_name(name: str, value: Any) -> None:
    found = error(complete(Service(), n=2, **{name: value}))
    assert name in found["message"]
    assert found["param"].split(".")[0] == name


def test_best_of_n_replies_are_n_replies() -> None:
    assert complete(Service(), best_of=1).status_code == 200


@pytest.mark.parametrize("name", ["tokenize", "chat_template", "messages", "tools", "a b"])
def test_template_options_cannot_steer_the_tokenizer(name: str) -> None:
    """A request that set `tokenize` once blocked another server. B15."""
    found = error(chat(Service(), chat_template_kwargs={name: True}))
    assert found["param"] == "chat_template_kwargs"


# -- numbers -----------------------------------------------------------------------------------

NUMBERS: list[tuple[str, Any]] = [
    ("temperature", -0.1),
    ("temperature", 101),
    ("temperature", "1"),
    ("temperature", True),
    ("temperature", HUGE),
    ("top_p", 1.01),
    ("top_p", -1),
    ("top_k", -2),
    ("top_k", 1.5),
    ("min_p", 2),
    ("n", 0),
    ("n", -1),
    ("n", 129),
    ("n", 10**9),
    ("n", True),
    ("max_tokens", 0),
    ("max_tokens", -5),
    ("max_tokens", 1 << 40),
    ("max_tokens", "5"),
    ("max_completion_tokens", 0),
    ("min_tokens", -1),
    ("seed", 0.5),
    ("presence_penalty", 1e9),
    ("frequency_penalty", -1e9),
    ("repetition_penalty", 0),
    ("top_logprobs", 21),
    ("top_logprobs", -1),
    ("timeout", 0),
    ("timeout", -1),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [1] * 1025),
    ("stop", ""),
    ("stop", ["ok", ""]),
    ("stop", ["x"] * 65),
    ("stop", "x" * 5000),
    ("stop", 5),
    ("stop", [5]),
    ("logit_bias", {"x": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"٣": 1}),
    ("logit_bias", {"9" * 40: 1}),
    ("logit_bias", {"1": 1e9}),
    ("logit_bias", {"1": None}),
    ("logit_bias", [1]),
    ("logit_bias", {str(at): 0 for at in range(1025)}),
    ("logprobs", "yes"),
    ("stream", "true"),
    ("stream", 1),
    ("stream_options", {"include_usage": "yes"}),
    ("model", 5),
    ("user", 5),
    ("metadata", "x"),
]


@pytest.mark.parametrize(("name", "value"), NUMBERS, ids=lambda it: str(it)[:30])
def test_a_value_out_of_bounds_is_a_400_that_names_it(name: str, value: Any) -> None:
    service = Service()
    found = error(
        chat(service, logprobs=True, **{name: value})
        if name != "logprobs"
        else chat(service, logprobs=value)
    )
    if value is not HUGE:  # not even a number to the decoder
        assert found["param"].startswith(name)
        assert found["message"].startswith(name)
    assert str(value) not in found["message"] or len(str(value)) < 4
    assert service.jobs == []


def test_alternatives_need_logprobs() -> None:
    assert error(chat(Service(), top_logprobs=2))["param"] == "top_logprobs"


@pytest.mark.parametrize(
    "prompt",
    [None, [], [[]], 5, {}, ["a", 5], [1, "a"], [[1], "a"], [-1], [1.5], [True], [[1 << 40]]],
)
def test_a_prompt_of_no_known_form_is_refused(prompt: Any) -> None:
    found = error(complete(Service(), prompt=prompt))
    assert found["param"].startswith("prompt")


def test_a_token_that_the_model_does_not_have_is_refused() -> None:
    found = error(complete(Service(), prompt=[[1], [2, 1 << 20]]))
    assert (found["param"], "1048576" in found["message"]) == ("prompt", True)
    assert complete(Service(), prompt=[[1], [2, (1 << 20) - 1]]).status_code == 200


def test_too_many_prompts_or_replies_are_refused() -> None:
    service = Service(context=16384)
    assert error(complete(service, prompt=["a"] * 257))["param"] == "prompt"
    assert error(chat(service, n=128, max_tokens=1 << 20))["param"] == "n"
    assert error(complete(service, prompt=["a"] * 200, max_tokens=8192))["param"] == "prompt"
    assert service.jobs == []
    assert chat(Service(context=4096), n=128, max_tokens=1 << 20).status_code == 200


# -- messages ----------------------------------------------------------------------------------

GOOD = {"role": "user", "content": "Hello"}


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        (None, "messages"),
        ([], "messages"),
        ("Hello", "messages"),
        ({}, "messages"),
        ([GOOD, "Hello"], "messages[1]"),
        ([GOOD, None], "messages[1]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": {}}], "messages[0].content"),
        ([GOOD, {"role": "user", "content": []}], "messages[1].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0].type"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "smell"}]}],
            "messages[0].content[1].type",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
            "messages[0].content[0].image_url",
        ),
    ],
    ids=str,
)
def test_a_malformed_message_is_a_400_that_says_where(messages: Any, place: str) -> None:
    """`param` and the message name the place. B17."""
    found = error(chat(Service(), messages=messages))
    assert found["param"] == place
    assert found["message"].startswith(place)


def test_messages_pass_as_they_are_but_for_older_forms() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Hi", "cache_control": {}}],
            "name": "me",
        },
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "1", "content": "5"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "function_call": call["function"], "reasoning": "hm"},
        {"role": "function", "name": "f", "content": None},
    ]
    service = Service()
    assert chat(service, messages=messages).status_code == 200
    older = {**call, "id": "call_function"}
    assert service.jobs[0].request["messages"] == [
        *messages[:4],
        {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
        {"role": "assistant", "tool_calls": [older], "reasoning_content": "hm"},
        {"role": "tool", "name": "f", "tool_call_id": "call_function", "content": ""},
    ]


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "assistant", "tool_calls": {}}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [1]}, "tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "tool_calls[0].function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]},
            "tool_calls[0].function.arguments",
        ),
        ({"role": "assistant", "content": "", "reasoning_content": 5}, "reasoning_content"),
        ({"role": "user", "content": []}, "content"),
        ({"role": "user", "content": ["a"]}, "content[0]"),
        ({"role": "user", "content": [{"type": "smell"}]}, "content[0].type"),
    ],
    ids=str,
)
def test_a_malformed_part_is_named(message: dict[str, Any], place: str) -> None:
    """`param` is the path of the part. B17."""
    found = error(chat(Service(), messages=[{"role": "user", "content": "Hi"}, message]))
    assert found["param"] == f"messages[1].{place}"


# -- names and the rest ------------------------------------------------------------------------


def test_an_unknown_model_is_a_404() -> None:
    found = error(chat(Service(), model="gpt-99"), 404)
    assert (found["code"], found["param"]) == ("model_not_found", "model")
    error(ask(Service(), "GET", "/v1/models/" + "x" * 300))
    found = error(ask(Service(), "GET", "/v1/models/gpt/99"), 404)
    assert found["code"] == "model_not_found"


def test_models_are_listed_and_found_with_slashes_in_their_names() -> None:
    service = Service(options=options(served_names=("org/name", "short")))
    listed = ask(service, "GET", "/v1/models").json()
    assert [it["id"] for it in listed["data"]] == ["org/name", "short"]
    assert listed["object"] == "list"
    one = ask(service, "GET", "/v1/models/org/name").json()
    # Each `ask` makes an application of its own, perhaps a second later.
    timeless = {"created": 0, "created_at": ""}
    assert {**one, **timeless} == {**listed["data"][0], **timeless}
    assert one["max_model_len"] == 4096
    assert chat(service, model="short").json()["model"] == "short"


def test_tokens_are_counted_and_read_back() -> None:
    service = Service()
    found = ask(service, "POST", "/tokenize", json={"prompt": "ab", "add_special_tokens": False})
    told = {"count": 2, "max_model_len": 4096, "tokens": [97, 98], "token_strs": None}
    assert found.json() == told
    ask(service, "POST", "/tokenize", json={"messages": [GOOD], "add_generation_prompt": False})
    assert service.asked == [
        {"prompt": "ab", "add_special_tokens": False},
        {"messages": [GOOD], "chat_template_kwargs": {"add_generation_prompt": False}},
    ]
    text = ask(service, "POST", "/detokenize", json={"tokens": [97, 98]}).json()
    assert text == {"prompt": "ab", "content": "ab"}
    assert error(ask(service, "POST", "/tokenize", json={}))["param"] == "prompt"
    assert (
        error(ask(service, "POST", "/detokenize", json={"tokens": ["a"]}))["param"] == "tokens[0]"
    )


def test_health_tells_the_truth() -> None:
    """200 while it serves; 503 with the reason and when to come back while it loads. B52."""
    assert ask(Service(), "GET", "/health").status_code == 200
    reply = ask(Service(unwell="it is being loaded"), "GET", "/health")
    assert "being loaded" in error(reply, 503)["message"]
    assert "retry-after" in reply.headers


def test_a_request_is_cancelled_by_the_id_its_reply_carries() -> None:
    service = Service()
    reply = chat(service).json()
    assert ask(service, "DELETE", f"/v1/requests/{reply['id']}").json()["cancelled"] is True
    assert error(ask(service, "DELETE", "/v1/requests/other"), 404)["code"] == "request_not_found"


def test_what_else_can_be_asked() -> None:
    service = Service()
    assert ask(service, "GET", "/metrics").text == "up 1\n"
    assert ask(service, "GET", "/v1/status").json() == {"running": 0}
    assert set(ask(service, "GET", "/version").json()) == {"version"}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_the_cache_is_told_and_without_an_engine_an_error(method: str) -> None:
    told = ask(Service(), method, "/v1/cache")
    assert told.status_code == 200
    assert (told.json()["on"], told.json()["why"]) == (False, "it is a script")
    refused = ask(Service(unwell="it is starting"), method, "/v1/cache")
    assert error(refused, 503)["code"] == "engine_unavailable"


def test_the_application_loads_no_mlx() -> None:
    """The front process must live on when MLX takes a process down. Nor does it load numpy, for
    which everyone who starts a server would wait.
    """
    code = "import sys, bushel.server.app, bushel.server.http.connection; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    roots = {name.split(".")[0] for name in loaded.stdout.split()}
    assert "bushel" in roots
    assert not roots & {"mlx", "mlx_lm", "mlx_vlm", "numpy", "torch"}


def test_no_route_and_no_method_have_the_same_form_of_error() -> None:
    assert error(ask(Service(), "GET", "/v2"), 404)["code"] == "not_found"
    reply = ask(Service(), "GET", "/v1/chat/completions")
    assert error(reply, 405)["code"] == "method_not_allowed"
    assert reply.headers["allow"] == "POST"
    assert "x-request-id" in reply.headers


# Of APIs that are not OpenAI's, by how their paths begin.
ERROR_FORMS = {
    "/v1/messages": "MessagesError",
    "/api/": "OllamaError",
    "/completion": "LlamaError",
    "/props": "LlamaError",
    "/apply-template": "LlamaError",
}


def test_the_openapi_document_promises_only_our_own_errors() -> None:
    document = ask(Service(), "GET", "/openapi.json").json()
    operations = [(at, op) for at, path in document["paths"].items() for op in path.values()]
    assert len(operations) >= 15
    for path, operation in operations:
        assert "422" not in operation["responses"]
        forms = (form for start, form in ERROR_FORMS.items() if path.startswith(start))
        ours = next(forms, "ErrorBody")
        for status, response in operation["responses"].items():
            if not status.startswith("2"):
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": f"#/components/schemas/{ours}"}
