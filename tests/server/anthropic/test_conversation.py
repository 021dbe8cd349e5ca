"""What a body of the Messages API becomes, and which ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.chat.client_headers import without_headers
from bushel.server.anthropic.conversation import conversation_of
from bushel.server.api.errors import InvalidField
from bushel.server.app import create_app
from bushel.server.service.services import Services
from tests import corpus
from tests.depth import some
from tests.server.anthropic.messages_client import TOOL, post
from tests.server.scripted_service import Service, run

CALL = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
CALLED = {"id": "toolu_1", "type": "function"} | {
    "function": {"name": "read", "arguments": {"path": "a"}}
}
PIXEL = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
SHOWN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def block(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def message(role: str, *content: Any) -> dict[str, Any]:
    one = len(content) == 1 and isinstance(content[0], str)
    return {"role": role, "content": content[0] if one else list(content)}


def turns(*messages: Any, **body: Any) -> list[Any]:
    return list(conversation_of({"messages": list(messages), **body})["messages"])


def result(content: Any = None, **more: Any) -> dict[str, Any]:
    said = {} if content is None else {"content": content}
    return {"type": "tool_result", "tool_use_id": "toolu_1", **said, **more}


# -- system prompts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "system", ["Be brief.", [block("Be brief.")], [block("Be brief.", cache_control={"a": 1})]]
)
def test_a_system_prompt_is_the_same_as_text_and_as_blocks(system: Any) -> None:
    """Clients alternate between the forms, and move their cache marks. B12."""
    first, _ = turns(message("user", "Hi"), system=system)
    assert first == {"role": "system", "content": "Be brief."}


def test_the_billing_block_is_where_it_is_looked_for() -> None:
    """A system prompt is the same with and without Claude Code's header. B19."""
    header = "x-anthropic-billing-header: cc_version=2.1.325.669; cc_entrypoint=sdk-cli;"
    said = turns(message("user", "Hi"), system=[block(header), block("Be brief."), block("Now.")])
    plain = turns(message("user", "Hi"), system=[block("Be brief."), block("Now.")])
    assert said != plain
    assert without_headers(said) == plain


def test_a_system_message_stays_where_it_is() -> None:
    """Agents put them after the first question, and between later ones. B13."""
    found = turns(
        message("user", "Hi"),
        message("system", "One."),
        message("assistant", "Yes?"),
        message("user", result("a"), block("b")),
        message("system", block("Two.", cache_control={"type": "ephemeral"})),
    )
    assert [it["role"] for it in found] == [
        *("user", "system", "assistant", "tool", "user", "system")
    ]
    assert (found[1]["content"], found[5]["content"]) == ("One.", "Two.")


def test_a_system_message_may_be_for_one_question_only() -> None:
    brief = {**message("system", "Be brief."), "clear_at": "next_user_message"}
    now = turns(message("user", "Hi"), brief)
    later = turns(message("user", "Hi"), brief, message("assistant", "Yes?"), message("user", "a"))
    assert [it["role"] for it in now] == ["user", "system"]
    assert [it["role"] for it in later] == ["user", "assistant", "user"]


# -- content -----------------------------------------------------------------------------------


def test_the_same_message_as_text_and_as_a_list_is_the_same() -> None:
    assert turns(message("user", "Hi")) == turns(message("user", block("Hi", cache_control={})))
    assert turns(message("user", block("a"), block("b")))[0]["content"] == "a\nb"


def test_images_of_both_kinds_keep_their_place() -> None:
    url = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    [turn] = turns(message("user", block("a"), {"type": "image", "source": PIXEL}, url, block("b")))
    assert turn["content"] == [
        block("a"),
        SHOWN,
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        block("b"),
    ]


def test_documents_and_search_results_are_text() -> None:
    plain = {"type": "document", "title": "T", "source": {"type": "text", "data": "words"}}
    parts = {"type": "document", "source": {"type": "content", "content": [block("more")]}}
    found = {"type": "search_result", "title": "S", "source": "web", "content": [block("hit")]}
    assert turns(message("user", plain, parts, found))[0]["content"] == (
        "T\nwords\nmore\nS\nweb\nhit"
    )


def test_calls_results_and_what_is_said_with_them_keep_their_order() -> None:
    """Results answer the calls before them; text beside them comes after. B18."""
    second = {**CALL, "id": "toolu_2"}
    found = turns(
        message("user", "Look."),
        message("assistant", block("I read."), CALL, second),
        message("user", result("one"), {**result("two"), "tool_use_id": "toolu_2"}, block("Go on")),
    )
    assert found[1:] == [
        {
            "role": "assistant",
            "content": "I read.",
            "tool_calls": [CALLED, {**CALLED, "id": "toolu_2"}],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "one"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "two"},
        {"role": "user", "content": "Go on"},
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (result("a"), "a"),
        (result([block("a"), block("b")]), "a\nb"),
        (result(), ""),
        (result([]), ""),
        (result("no such file", is_error=True), "no such file"),
        (result([], is_error=True), "Error"),
        (result([block("a"), {"type": "image", "source": PIXEL}]), [block("a"), SHOWN]),
        (
            result([{"type": "tool_reference", "tool_name": "WebFetch"}]),
            [{"type": "tool_reference", "name": "WebFetch"}],
        ),
    ],
)
def test_a_result_may_have_any_form(given: Any, expected: Any) -> None:
    [turn] = turns(message("user", given))
    assert turn == {"role": "tool", "tool_call_id": "toolu_1", "content": expected}


def test_thoughts_are_kept_and_signatures_of_others_are_not() -> None:
    """Thoughts come back to the model; sealed ones of others are left out. B29."""
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c3R1Yg=="}
    sealed = {"type": "redacted_thinking", "data": "AAAA"}
    _, turn = turns(message("user", "Hi"), message("assistant", thought, sealed, CALL))
    assert turn == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Hm.",
        "tool_calls": [CALLED],
    }


def test_a_reply_may_be_begun_by_the_client() -> None:
    said = {"messages": [message("user", "Hi"), message("assistant", "The answer is")]}
    assert conversation_of(said)["chat_template_kwargs"] == {"continue_final_message": True}
    for last in (message("assistant", CALL), message("user", "Hi")):
        assert "chat_template_kwargs" not in conversation_of({"messages": [last]})


# -- tools -------------------------------------------------------------------------------------


def told(**body: Any) -> dict[str, Any]:
    said = conversation_of({"messages": [message("user", "Hi")], **body})
    return {key: value for key, value in said.items() if key != "messages"}


def test_tools_are_functions_and_keep_what_matters() -> None:
    given = [
        {**TOOL, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True},
        {**TOOL, "name": "later", "type": "custom", "defer_loading": True, "strict": True},
    ]
    first, second = told(tools=given)["tools"]
    function = {"description": "Reads a file.", "parameters": TOOL["input_schema"]}
    assert first == {"type": "function", "function": {"name": "read", **function}}
    assert second["deferred"] is True
    assert second["function"] == {"name": "later", **function, "strict": True}


def test_tools_that_another_server_would_run_are_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    found = told(tools=[search, TOOL])["tools"]
    assert [it["function"]["name"] for it in found] == ["read"]
    assert "web_search_20250305" in caplog.text
    assert "tools" not in told(tools=[search])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, {"tool_choice": "auto"}),
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "tool", "name": "read"}, {"tool_choice": {"name": "read"}}),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            {"tool_choice": "required", "parallel": False},
        ),
    ],
)
def test_the_choice_of_tools_is_passed_on(choice: Any, expected: dict[str, Any]) -> None:
    said = told(tools=[TOOL], tool_choice=choice)
    assert said.pop("tools")
    assert said == expected


def test_choosing_none_offers_no_tools() -> None:
    assert told(tools=[TOOL], tool_choice={"type": "none"}) == {}


# -- thinking, and the form of the answer --------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"thinking": {"type": "disabled"}}, {"enabled": False}),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, None),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 31999}},
            {"enabled": True, "budget": 31999},
        ),
        ({"output_config": {"effort": "high"}}, {"effort": "high"}),
    ],
)
def test_thinking_is_asked_for_as_the_client_says(body: Any, expected: Any) -> None:
    assert told(**body).get("thinking") == expected


def test_an_answer_may_be_held_to_a_schema() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    for body in ({"output_config": {"format": form}}, {"output_format": form}):
        assert told(**body)["shape"] == {"json_schema": {"type": "object"}}


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"messages": []}, "messages"),
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [message("tool", "Hi")]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [message("user", block("a"), 3)]}, "messages[0].content[1]"),
        ({"messages": [message("user", {"type": "hologram"})]}, "messages[0].content[0]"),
        ({"messages": [message("user", block(3))]}, "messages[0].content[0].text"),  # type: ignore[arg-type]
        (
            {"messages": [message("user", {"type": "image", "source": {"type": "file"}})]},
            "messages[0].content[0].source",
        ),
        (
            {
                "messages": [
                    message("user", {"type": "image", "source": {**PIXEL, "media_type": "x"}})
                ]
            },
            "messages[0].content[0].source.media_type",
        ),
        (
            {"messages": [message("user", {"type": "document", "source": PIXEL})]},
            "messages[0].content[0].source",
        ),
        (
            {"messages": [message("assistant", {**CALL, "input": "x"})]},
            "messages[0].content[0].input",
        ),
        ({"system": [{"type": "image", "source": PIXEL}]}, "system[0]"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "all"}}, "tool_choice.type"),
        ({"output_config": {"format": {"type": "yaml"}}}, "output_config.format"),
    ],
)
def test_what_cannot_be_said_is_refused_by_its_place(body: dict[str, Any], place: str) -> None:
    """A client gets a 400 that says which field or block is wrong. B17, B71."""
    with pytest.raises(InvalidField) as caught:
        conversation_of({"messages": [message("user", "Hi")], **body})
    assert caught.value.param == place
    assert str(caught.value).startswith(place)
    reply = post(Service(), **body)
    assert reply.status_code == 400
    assert place in reply.json()["error"]["message"]


def json_values() -> st.SearchStrategy[Any]:
    """Anything, with a liking for the names that mean something."""
    kinds = (
        *("text", "image", "document", "search_result", "thinking", "redacted_thinking"),
        *("tool_use", "tool_result", "tool_reference", "base64", "url", "content", "json_schema"),
        *("user", "assistant", "system", "custom", "auto", "any", "tool", "none", "read", ""),
    )
    keys = st.sampled_from(
        (
            *(
                "type",
                "role",
                "content",
                "text",
                "source",
                "title",
                "context",
                "data",
                "id",
                "name",
            ),
            *("input", "tool_use_id", "tool_name", "thinking", "signature", "is_error", "schema"),
            *("media_type", "url", "input_schema", "effort", "format", "clear_at", "output_config"),
        )
    )
    leaves = st.sampled_from((None, True, 0, 3, "x", *kinds))
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=12,
    )


_FIELDS = ("system", "tools", "tool_choice", "thinking", "output_config", "output_format")


@settings(max_examples=some(300))
@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(("user", "assistant", "system")), "content": json_values()}
        )
        | json_values(),
        max_size=3,
    ),
    st.dictionaries(st.sampled_from(_FIELDS), json_values(), max_size=3),
)
def test_any_body_is_understood_or_refused(messages: list[Any], more: dict[str, Any]) -> None:
    """Nothing else can happen to it, and what is understood can travel. B17, B48."""
    try:
        said = conversation_of({"messages": messages, **more})
    except InvalidField:
        return
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(said)) == said
    for turn in said["messages"]:
        parts = turn["content"] if isinstance(turn["content"], list) else []
        assert all(isinstance(part["type"], str) for part in parts)
        assert all(isinstance(part.get("text", ""), str) for part in parts)


# -- recorded bodies -----------------------------------------------------------------------------


def recorded() -> list[Path]:
    found = corpus.files("clients/*.json")
    return [it for it in found if json.loads(it.read_text())["path"].startswith("/v1/messages")]


@pytest.mark.corpus
@pytest.mark.skipif(corpus.FOLDER is None, reason=corpus.MISSING)
def test_every_recorded_body_is_accepted_but_for_threads() -> None:
    async def work() -> None:
        transport = httpx.ASGITransport(create_app(Services(Service())))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for path in recorded():
                sent = json.loads(path.read_text())
                body = {**sent["body"], "model": None}
                reply = await client.post(sent["path"], headers=sent["headers"], json=body)
                threaded = "thread" in sent["body"]
                assert reply.status_code == (400 if threaded else 200), (path.name, reply.text)

    assert len(recorded()) > 30
    run(work())


@pytest.mark.corpus
@pytest.mark.skipif(corpus.FOLDER is None, reason=corpus.MISSING)
@pytest.mark.parametrize("name", ["claude-code_messages", "claude-code_messages-sonnetname"])
def test_the_second_turn_of_an_agent_extends_the_first(name: str) -> None:
    """Though what was a list is a string by then. B34, B12."""
    bodies = [
        json.loads(path.read_text())["body"]
        for at in (1, 2)
        for path in corpus.files(f"clients/{name}_turn{at}.json")
    ]
    first, second = (conversation_of(body) for body in bodies)
    count = len(first["messages"])
    assert second["messages"][:count] == first["messages"]
    assert second["tools"] == first["tools"]
    assert len(second["messages"]) > count
