"""Conversations in Python: what a reply is held to, and what is read of it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bushel import LLM, RequestError, SamplingParams
from bushel.chat.script_request import checked_fields
from bushel.core import ThoughtDelta
from bushel.server.openai.chat.conversation import conversation_of
from bushel.server.openai.chat.schema import ChatRequest
from tests.depth import often
from tests.llm.request_builders import assert_same, chat, greedy

ASKED = [{"role": "user", "content": "What is the weather in Paris?"}]
SUM = [{"role": "user", "content": "What is 3 + 4?"}]
# Hot enough that nothing but a grammar keeps it in form.
WILD = SamplingParams(temperature=1.5, seed=3, max_tokens=200)
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"enum": [7, 8]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
AS_PERSON = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
NAMED = {"type": "function", "function": {"name": "send_mail"}}


def tool(name: str, *arguments: str) -> dict[str, Any]:
    properties = {argument: {"type": "string", "maxLength": 20} for argument in arguments}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [tool("get_weather", "city"), tool("send_mail", "to")]


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: its name
    """
    return f"{city} is sunny"


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("bushel:tiny") as loaded:
        yield loaded


# -- the answer's form ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", often(range(3), 0))
def test_a_schema_is_kept_and_its_value_is_there(llm: LLM, seed: int) -> None:
    """`response_format` holds the reply as it does over HTTP, and `parsed` is what it says. B71."""
    params = {"temperature": 1.5, "seed": seed, "max_tokens": 200}
    [output] = llm.chat(SUM, params, response_format=AS_PERSON)
    assert output.finish_reason == "stop"
    assert output.parsed == json.loads(output.text)
    assert set(output.parsed) == {"name", "age"}
    assert output.parsed["age"] in (7, 8)


def test_control_without_a_format_the_same_reply_is_no_json(llm: LLM) -> None:
    """And what was not asked to be JSON is not read as such."""
    [output] = llm.chat(SUM, WILD)
    with pytest.raises(json.JSONDecodeError):
        json.loads(output.text)
    assert output.parsed is None
    [number] = llm.generate({"messages": SUM, "shape": {"regex": "[0-9]{3}"}}, WILD)
    assert (len(number.text), number.parsed) == (3, None)


@pytest.mark.long
def test_an_object_is_an_object_in_every_choice(llm: LLM) -> None:
    """Each of several choices is held by itself. B71."""
    params = {"temperature": 0.8, "seed": 1, "max_tokens": 300, "n": 3}
    [output] = llm.chat(SUM, params, response_format={"type": "json_object"})
    ended = [choice for choice in output.choices if choice.finish_reason == "stop"]
    assert ended
    assert all(isinstance(choice.parsed, dict) for choice in ended)
    assert all(choice.text.lstrip().startswith("{") for choice in output.choices)


def test_a_cut_answer_has_no_value(llm: LLM) -> None:
    [output] = llm.chat(SUM, {"max_tokens": 3}, response_format=AS_PERSON)
    assert (output.finish_reason, output.parsed) == ("length", None)
    assert output.text.startswith("{")


def test_a_plain_prompt_is_held_too(llm: LLM) -> None:
    [output] = llm.generate({"prompt": "Ada:", "response_format": AS_PERSON}, WILD)
    assert set(output.parsed) == {"name", "age"}


# -- tools ------------------------------------------------------------------------------------


def test_a_call_is_read_and_is_no_text(llm: LLM) -> None:
    [output] = llm.chat(ASKED, tools=TOOLS)
    [call] = output.tool_calls
    assert (call.name, call.arguments, call.text) == (
        "get_weather",
        {"city": "Paris"},
        '{"city": "Paris"}',
    )
    assert (output.text, output.finish_reason) == ("", "tool_calls")
    assert call.id.startswith("call_")


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "send_mail"}),
        (NAMED, {"send_mail"}),
        ({"type": "allowed_tools", "mode": "required", "tools": [NAMED]}, {"send_mail"}),
    ],
    ids=["required", "named", "allowed"],
)
@pytest.mark.parametrize("seed", often(range(3), 0))
def test_a_call_that_is_demanded_is_made(llm: LLM, choice: Any, names: set[str], seed: int) -> None:
    """`tool_choice` is enforced, whatever the model would rather say. B71."""
    params = {"temperature": 1.5, "seed": seed, "max_tokens": 300}
    [output] = llm.chat(SUM, params, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    assert output.error is None
    [call] = output.tool_calls
    assert call.name in names
    assert call.arguments is not None


def test_control_no_call_is_made_where_none_is_demanded(llm: LLM) -> None:
    """The same question with tools, and the same tools out of reach. B71."""
    [auto] = llm.chat(SUM, tools=TOOLS, tool_choice="auto")
    [none] = llm.chat(ASKED, tools=TOOLS, tool_choice="none")
    [bare] = llm.chat(ASKED)
    assert (auto.tool_calls, auto.text) == ([], "3 + 4 = 7")
    assert none.tool_calls == []
    assert_same(none, bare)


def test_a_python_function_is_a_tool(llm: LLM) -> None:
    """Its result goes back as a message, and the model answers from it."""
    [output] = llm.chat(ASKED, tools=[get_weather])
    [call] = output.tool_calls
    assert call.arguments is not None
    result = {"role": "tool", "tool_call_id": call.id, "content": get_weather(**call.arguments)}
    turns = [*ASKED, output.message, result]
    [answer] = llm.chat(turns, tools=[get_weather])
    assert "sunny" in answer.text
    assert answer.tool_calls == []


def test_a_call_that_is_cut_off_has_no_arguments(llm: LLM) -> None:
    """What was written of it is there, and cannot be taken for the whole. B24."""
    [whole] = llm.chat(ASKED, tools=TOOLS)
    limit = len(whole.token_ids) - 4
    [output] = llm.chat(ASKED, {"max_tokens": limit}, tools=TOOLS)
    assert output.finish_reason == "length"
    [call] = output.tool_calls
    assert call.arguments is None
    assert whole.tool_calls[0].text.startswith(call.text)


# -- thoughts ---------------------------------------------------------------------------------


def test_thoughts_are_apart_from_the_answer(llm: LLM) -> None:
    """Also in the turn that the conversation goes on with. B29."""
    [output] = llm.chat(SUM, thinking={"enabled": True})
    assert (output.reasoning, output.text) == ("3 + 4 is 7.", "3 + 4 = 7")
    assert output.message == {
        "role": "assistant",
        "content": "3 + 4 = 7",
        "reasoning_content": "3 + 4 is 7.",
    }
    [plain] = llm.chat(SUM)
    assert plain.reasoning == ""


def test_a_stream_shows_the_answer_and_tells_the_rest(llm: LLM) -> None:
    """The text of its events is that of the output; thoughts are among the deltas. B20."""
    asked = {"messages": SUM, "thinking": {"enabled": True}}
    events = list(llm.stream(asked))
    assert "".join(event.text for event in events) == "3 + 4 = 7"
    said = [delta for event in events for delta in event.deltas]
    thoughts = [delta.text for delta in said if isinstance(delta, ThoughtDelta)]
    assert "".join(thoughts) == "3 + 4 is 7."


# -- conversations ----------------------------------------------------------------------------


def test_several_conversations_are_answered_together(llm: LLM) -> None:
    outputs = llm.chat([SUM, ASKED], [{"max_tokens": 50}, {"max_tokens": 1}])
    assert outputs[0].text == "3 + 4 = 7"
    assert len(outputs[1].token_ids) == 1


def test_a_bad_conversation_fails_alone(llm: LLM) -> None:
    """Of several, it alone has an error. B48."""
    good, bad = llm.chat([SUM, [{"role": "user", "content": 5}]])
    assert good.text == "3 + 4 = 7"
    assert "messages[0]" in (bad.error or "")


IMPOSSIBLE: dict[str, tuple[Any, dict[str, Any], str]] = {
    "text": ("Hello", {}, "messages must be a list"),
    "one message": (SUM[0], {}, "messages must be a list"),
    "nothing": ([], {}, "messages must be a list"),
    "misspelt argument": (SUM, {"respone_format": {}}, "did you mean 'response_format'?"),
    "sampling parameter": (SUM, {"temperature": 0}, "goes into params"),
    "wrong tools": (SUM, {"tools": "all"}, "tools must be a list"),
    "wrong choice": (SUM, {"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice must be"),
    "choice of a stranger": (
        SUM,
        {"tools": TOOLS[:1], "tool_choice": NAMED},
        "'send_mail', which is not among the tools",
    ),
    "wrong format": (SUM, {"response_format": {"type": "xml"}}, "response_format.type"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_call_that_cannot_be_meant_raises(llm: LLM, case: str) -> None:
    """The error names the argument. B71."""
    messages, fields, message = IMPOSSIBLE[case]
    with pytest.raises(RequestError) as raised:
        llm.chat(messages, **fields)
    assert message in str(raised.value)


def test_a_schema_that_cannot_be_held_to_is_the_requests_own_error(llm: LLM) -> None:
    """It is refused, not ignored. B71."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}, "required": ["a"]}
    asked = chat("Who?", response_format={"type": "json_schema", "json_schema": {"schema": schema}})
    good, bad = llm.generate([chat("What is 3 + 4?"), asked])
    assert good.text == "3 + 4 = 7"
    assert bad.error is not None


# -- the same as over HTTP --------------------------------------------------------------------

FIELDS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "text": {"response_format": {"type": "text"}},
    "object": {"response_format": {"type": "json_object"}},
    "schema": {"response_format": AS_PERSON},
    "no schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "any"}}},
    "tools": {"tools": TOOLS},
    "none": {"tools": TOOLS, "tool_choice": "none"},
    "auto": {"tools": TOOLS, "tool_choice": "auto"},
    "required": {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
    "named": {"tools": TOOLS, "tool_choice": NAMED},
    "allowed": {
        "tools": TOOLS,
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]},
    },
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_field_means_what_it_means_over_http(case: str) -> None:
    """A script's fields and a body's become the same conversation. B71."""
    body = conversation_of(ChatRequest(messages=SUM, **FIELDS[case]))
    script = checked_fields(FIELDS[case]).items()
    assert {"messages": SUM, **{key: value for key, value in script if value is not None}} == body


def test_a_server_says_no_in_the_same_words() -> None:
    """The rule is one, told of a body and of a call. B71."""
    with pytest.raises(RequestError) as script:
        checked_fields({"tools": TOOLS[:1], "tool_choice": NAMED})
    with pytest.raises(Exception, match="tool_choice") as server:
        conversation_of(ChatRequest(messages=SUM, tools=TOOLS[:1], tool_choice=NAMED))
    assert str(server.value) == str(script.value)


@pytest.mark.long
def test_greedy_and_wild_rows_share_a_batch(llm: LLM) -> None:
    """Held, free and calling rows: each what it is alone."""
    asked = [
        {"messages": SUM},
        {"messages": SUM, "response_format": AS_PERSON},
        {"messages": ASKED, "tools": TOOLS, "tool_choice": "required"},
    ]
    params = greedy(30, ignore_eos=False)
    for together, request in zip(llm.generate(asked, params), asked, strict=True):
        [alone] = llm.generate(request, params)
        assert_same(together, alone)
        assert [call.arguments for call in together.tool_calls] == [
            call.arguments for call in alone.tool_calls
        ]
