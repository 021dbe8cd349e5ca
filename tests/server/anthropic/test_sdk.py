"""Anthropic's own Python SDK against `bushel serve`, with answers that are right."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import pytest
from pydantic import BaseModel

from tests.depth import often
from tests.drawings import see
from tests.server.compare_with_llm import MODEL, Reference
from tests.server.conftest import KEY, SHORT
from tests.server.server_process import Server

SUM: list[Any] = [{"role": "user", "content": "What is 3 + 4?"}]
OSLO: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
ADD: Any = {
    "name": "add",
    "description": "Adds two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


class Caller:
    def __init__(self, url: str):
        self.sdk = anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)

    def fields(self, messages: list[Any], **more: Any) -> dict[str, Any]:
        # The SDK has no argument for the temperature.
        settings = {"max_tokens": 200, "extra_body": {"temperature": 0}, "model": MODEL}
        return {**settings, "messages": messages, **more}

    def ask(self, messages: list[Any], **more: Any) -> anthropic.types.Message:
        return self.sdk.messages.create(**self.fields(messages, **more))

    def stream(self, messages: list[Any], **more: Any) -> anthropic.types.Message:
        """The final message of the SDK's stream helper, which puts it together."""
        with self.sdk.messages.stream(**self.fields(messages, **more)) as stream:
            return stream.get_final_message()


@pytest.fixture(scope="session")
def _anthropic(_tiny: Server) -> Iterator[Caller]:
    caller = Caller(_tiny.url)
    yield caller
    caller.sdk.close()


@pytest.fixture
def claude(_anthropic: Caller, tiny: Server) -> Caller:
    """Someone who talks to `tiny` in Anthropic's way."""
    return _anthropic


def text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def prompt_of(usage: Any) -> int:
    return int(
        usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    )


# -- replies ------------------------------------------------------------------------------------


def test_a_message_is_what_the_model_says(claude: Caller, reference: Reference) -> None:
    """The system prompt and all turns. B14."""
    turns: list[Any] = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": [{"type": "text", "text": "Good morning, Ada."}]},
        {"role": "user", "content": [{"type": "text", "text": "What is the codeword?"}]},
    ]
    system = "The codeword is marmalade."
    plain = [{"role": "system", "content": system}, *turns[:1]] + [
        {"role": turn["role"], "content": turn["content"][0]["text"]} for turn in turns[1:]
    ]
    expected = reference.chat(plain, temperature=0, max_tokens=200)
    for ask in (claude.ask, claude.stream):
        got = ask(turns, system=system)
        assert text(got) == expected.text
        assert (got.stop_reason, got.model) == ("end_turn", MODEL)
        assert (prompt_of(got.usage), got.usage.output_tokens) == expected.usage
    assert "marmalade" in expected.text


def test_the_helper_of_streams_hands_on_text_as_it_comes(claude: Caller) -> None:
    """Long enough not to be one piece on a machine that is busy elsewhere."""
    asked = claude.fields([{"role": "user", "content": "Tell me a story."}])
    with claude.sdk.messages.stream(**asked) as stream:
        pieces = list(stream.text_stream)
        whole = stream.get_final_text()
    assert "".join(pieces) == whole
    assert len(pieces) > 1


def test_several_clients_may_ask_at_once(tiny: Server) -> None:
    async def work() -> list[str]:
        async with anthropic.AsyncAnthropic(base_url=tiny.url, api_key="any") as client:
            fields = {"model": MODEL, "max_tokens": 60, "extra_body": {"temperature": 0}}
            asked = [[{"role": "user", "content": f"What is 3 + {at}?"}] for at in (1, 2, 3, 4)]
            found = await asyncio.gather(
                *(client.messages.create(messages=it, **fields) for it in asked)
            )
            return [text(it) for it in found]

    assert asyncio.run(work()) == [f"3 + {at} = {3 + at}" for at in (1, 2, 3, 4)]


def test_a_reply_ends_at_a_stop_sequence_or_the_limit(claude: Caller) -> None:
    """The message names the sequence that ended it, or `max_tokens`. B22."""
    for ask in (claude.ask, claude.stream):
        stopped = ask(SUM, stop_sequences=["="])
        assert (text(stopped), stopped.stop_reason, stopped.stop_sequence) == (
            *("3 + 4 ", "stop_sequence", "="),
        )
        assert ask(SUM, max_tokens=2).stop_reason == "max_tokens"


def test_far_too_many_tokens_may_be_asked_for(claude: Caller) -> None:
    """128,000 tokens are no error; the answer is as long as it is. B50."""
    assert text(claude.stream(SUM, max_tokens=128_000)) == "3 + 4 = 7"


def test_a_reply_goes_on_where_the_client_began_it(claude: Caller) -> None:
    begun = [*SUM, {"role": "assistant", "content": "3 + 4"}]
    assert text(claude.ask(begun)) == " = 7"


def test_thoughts_come_as_blocks_of_their_own_when_asked_for(claude: Caller) -> None:
    """Signed, and empty where the client wants them omitted. B29."""
    for ask in (claude.ask, claude.stream):
        got = ask(SUM, thinking={"type": "enabled", "budget_tokens": 1024})
        thought, said = got.content
        assert thought.type == "thinking"
        assert thought.thinking
        assert thought.signature
        assert text(got) == "3 + 4 = 7"
        hidden = ask(SUM, thinking={"type": "enabled", "budget_tokens": 1024, "display": "omitted"})
        assert hidden.content[0].type == "thinking"
        assert hidden.content[0].thinking == ""
        assert len(hidden.content[0].signature) > len(thought.thinking)
        assert hidden.content[1] == said
    assert [it.type for it in claude.ask(SUM, thinking={"type": "disabled"}).content] == ["text"]


def test_a_picture_is_seen_in_a_message_and_in_a_result(claude: Caller) -> None:
    data = io.BytesIO()
    see("square", "red").save(data, "PNG")
    encoded = base64.b64encode(data.getvalue()).decode()
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": encoded},
    }
    asked = {"type": "text", "text": "What colour is it?"}
    assert "red" in text(claude.ask([{"role": "user", "content": [image, asked]}]))
    used = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}
    turns = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [result, asked]},
    ]
    got = claude.ask(turns)  # what it makes of that is beyond the model
    assert got.stop_reason == "end_turn"
    assert prompt_of(got.usage) > prompt_of(claude.ask(turns[:1]).usage) + 16


# -- tools --------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", often([False, True], True))
def test_a_tool_is_called_and_its_result_answered(claude: Caller, streamed: bool) -> None:
    """The history of the second request is what the first one gave. B18, B23."""
    ask = claude.stream if streamed else claude.ask
    first = ask(OSLO, tools=[WEATHER, ADD])
    assert first.stop_reason == "tool_use"
    [call] = first.content
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("get_weather", {"city": "Oslo"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": '{"temperature": 21}'}
    turns = [
        *OSLO,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = ask(turns, tools=[WEATHER, ADD])
    assert second.stop_reason == "end_turn"
    assert "21" in text(second)
    # B34: what the first turn left is read again.
    assert second.usage.cache_read_input_tokens >= prompt_of(first.usage) - 1


def test_a_choice_among_tools_is_obeyed(claude: Caller) -> None:
    named: Any = {"type": "tool", "name": "add"}
    got = claude.ask(OSLO, tools=[WEATHER, ADD], tool_choice=named).content[-1]
    assert got.type == "tool_use"
    assert got.name == "add"
    assert set(map(type, got.input.values())) <= {int}
    some = claude.ask(SUM, tools=[WEATHER], tool_choice={"type": "any"})
    assert some.stop_reason == "tool_use"
    none = claude.ask(OSLO, tools=[WEATHER], tool_choice={"type": "none"})
    assert none.stop_reason == "end_turn"


def test_a_call_that_the_limit_cuts_off_is_told_as_such(claude: Caller) -> None:
    """The call is there, with `max_tokens`, and its input is not the whole one. B24."""
    for ask in (claude.ask, claude.stream):
        got = ask(OSLO, tools=[WEATHER], max_tokens=12)
        assert got.stop_reason == "max_tokens"
        [call] = got.content
        assert call.type == "tool_use"
        assert call.name == "get_weather"
        assert call.input != {"city": "Oslo"}


@pytest.mark.parametrize("streamed", often([False, True], True))
def test_the_tool_runner_goes_on_without_a_thread(
    claude: Caller, tiny: Server, streamed: bool
) -> None:
    """It begins with one unless told otherwise; then it sends the whole conversation."""
    asked: list[str] = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: The city.
        """
        asked.append(city)
        return '{"temperature": 21}'

    fields = claude.fields(OSLO, tools=[get_weather])
    if streamed:
        messages = [
            it.get_final_message()
            for it in claude.sdk.beta.messages.tool_runner(**fields, stream=True)
        ]
    else:
        messages = list(claude.sdk.beta.messages.tool_runner(**fields))
    assert asked == ["Oslo"]
    assert [message.stop_reason for message in messages] == ["tool_use", "end_turn"]
    assert "21" in text(messages[-1])


def test_a_parsed_answer_is_an_object_of_its_class(claude: Caller) -> None:
    """To a question whose free answer is none. B71."""

    class Answer(BaseModel):
        colour: Literal["red", "green"]
        count: int

    got = claude.sdk.messages.parse(**claude.fields(SUM), output_format=Answer)
    assert isinstance(got.parsed_output, Answer)


# -- the traps of real clients -------------------------------------------------------------------

HEADER = "x-anthropic-billing-header: cc_version=2.1.325.{}; cc_entrypoint=sdk-cli;"


def block(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def count(claude: Caller, messages: list[Any], **more: Any) -> int:
    found = claude.sdk.messages.count_tokens(model=MODEL, messages=messages, **more)
    return found.input_tokens


def test_tokens_are_counted_as_they_are_used(claude: Caller) -> None:
    for messages, more in (
        (SUM, {}),
        (OSLO, {"tools": [WEATHER, ADD], "system": "Be brief."}),
        ([*SUM, {"role": "system", "content": "Be brief."}], {}),
    ):
        assert count(claude, messages, **more) == prompt_of(claude.ask(messages, **more).usage)
    assert count(claude, SUM) < count(claude, SUM, tools=[WEATHER])


def test_an_agents_header_and_forms_do_not_change_the_prompt(claude: Caller) -> None:
    """Another number in the header, a string for a list, marks that move. B19, B12."""
    system, marked = "You are an agent of few words.", {"cache_control": {"type": "ephemeral"}}
    reminder = "Today is Monday."
    first = claude.ask(
        [
            {"role": "user", "content": [block("What is 3 + 4?")]},
            {"role": "system", "content": [block(reminder, **marked)]},
        ],
        system=[block(HEADER.format("669")), block(system, **marked)],
    )
    again = claude.ask(
        [*SUM, {"role": "system", "content": reminder}],
        system=[block(HEADER.format("dc4")), block(system)],
    )
    assert prompt_of(again.usage) == prompt_of(first.usage)
    # An identical prompt computes one token (B32).
    assert again.usage.cache_read_input_tokens == prompt_of(first.usage) - 1
    assert first.usage.cache_creation_input_tokens > 0
    assert again.usage.cache_creation_input_tokens == 0
    other = claude.ask(SUM, system="Another prompt.")  # control
    assert other.usage.cache_read_input_tokens < prompt_of(other.usage) - 1


def test_a_system_message_in_the_middle_extends_what_is_kept(claude: Caller) -> None:
    """Earlier tokens do not change. B13."""
    turns: list[Any] = [
        {"role": "user", "content": "What is 3 + 4?"},
        {"role": "system", "content": "The codeword is marmalade."},
    ]
    first = claude.ask(turns, system="Be an agent in the middle.")
    turns += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "What is the codeword?"},
        {"role": "system", "content": [block("Be quick.")]},
    ]
    second = claude.ask(turns, system="Be an agent in the middle.")
    assert second.usage.cache_read_input_tokens > prompt_of(first.usage) // 2


@pytest.mark.long
def test_a_deferred_tool_leaves_what_is_kept_alone(claude: Caller) -> None:
    """It is told where it is referred to, and may stand anywhere in the list."""
    search: Any = {"name": "ToolSearch", "description": "Finds tools.", "input_schema": {}}
    later: Any = {**ADD, "defer_loading": True}
    turns: list[Any] = [{"role": "user", "content": "Find a tool that adds."}]
    without = count(claude, turns, tools=[search, WEATHER])
    first = claude.ask(turns, tools=[search, WEATHER])
    assert prompt_of(first.usage) == without
    used = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {}}
    reference = {"type": "tool_reference", "tool_name": "add"}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [reference]}
    turns += [{"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    second = claude.ask(turns, tools=[search, later, WEATHER])
    assert second.usage.cache_read_input_tokens > without // 2
    early = claude.ask(turns[:1], tools=[search, ADD, WEATHER])  # control: not deferred
    assert early.usage.cache_read_input_tokens < without // 2


# -- names, keys and errors ----------------------------------------------------------------------


def test_the_model_is_listed_and_found(claude: Caller) -> None:
    [listed] = list(claude.sdk.models.list(limit=1000))
    assert (listed.id, listed.type, listed.display_name) == (MODEL, "model", MODEL)
    assert claude.sdk.models.retrieve(MODEL).created_at == listed.created_at
    with pytest.raises(anthropic.NotFoundError):
        claude.sdk.models.retrieve("another")


def test_errors_are_of_the_classes_that_the_sdk_has_for_them(claude: Caller) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.ask(SUM, model="another")
    assert missing.value.type == "not_found_error"
    assert missing.value.request_id
    with pytest.raises(anthropic.BadRequestError) as wrong:
        claude.ask([{"role": "user", "content": [{"type": "hologram"}]}])
    assert "messages[0].content[0]" in wrong.value.message


def test_a_family_of_names_and_both_kinds_of_keys_are_taken(short: Server) -> None:
    """The server is told `--model-alias`, `--api-key`, and has a short context. B50."""
    asked: dict[str, Any] = {"max_tokens": 1, "messages": SUM, "model": "gpt-any"}
    by_key = anthropic.Anthropic(base_url=short.url, api_key=KEY, max_retries=0)
    by_token = anthropic.Anthropic(base_url=short.url, auth_token=KEY, max_retries=0)
    for client in (by_key, by_token):
        with client:
            assert client.messages.create(**asked).model == "small"
            with pytest.raises(anthropic.BadRequestError) as long:
                client.messages.create(
                    **{**asked, "messages": [{"role": "user", "content": "word " * 200}]}
                )
            assert "prompt is too long: " in long.value.message
            assert f" tokens > {SHORT - 1} maximum" in long.value.message
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "anthropic-beta": "new-2031"}
    reply = short.http.post("/v1/messages?beta=true", json=asked, headers=headers)
    assert reply.status_code == 200
    with (
        anthropic.Anthropic(base_url=short.url, api_key="wrong", max_retries=0) as client,
        pytest.raises(anthropic.AuthenticationError),
    ):
        client.messages.create(**asked)
