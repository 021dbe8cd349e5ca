"""What a Responses body says to the model."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from bushel.server.api.opaque_thoughts import seal
from bushel.server.errors import ApiError
from bushel.server.responses.conversation import conversation_of
from tests.server.responses.scripted_replies import LOOK, PATCH


def turns(*items: Any, **body: Any) -> list[Any]:
    return list(conversation_of({"input": list(items), **body})["messages"])


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def called(name: str, arguments: str = "{}", **more: Any) -> dict[str, Any]:
    """A function_call item; its id is its name's."""
    call = {"type": "function_call", "call_id": f"call_{name}", "name": name}
    return {**call, "arguments": arguments, **more}


def result(name: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{name}", "output": output}


def part(kind: str, text: str) -> dict[str, Any]:
    return {"type": kind, "text": text}


def test_text_is_a_user_turn_behind_the_instructions() -> None:
    found = conversation_of({"input": "Hi", "instructions": "Be brief."})
    assert found == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ]
    }


def test_empty_input_is_a_silent_user() -> None:
    """As Codex warms up a model."""
    assert turns(user("")) == conversation_of({"input": ""})["messages"] == [user("")]


def test_messages_come_with_and_without_a_type_and_in_all_forms_of_content() -> None:
    """A text and one part of text are the same. B11, B17."""
    said = turns(
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "id": "msg_1", **user([part("input_text", "One")])},
        {"role": "assistant", "content": [part("output_text", "Two")], "phase": "final_answer"},
        user([part("input_text", "Three"), part("input_text", "Four")]),
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "system", "content": "Later."},
    )
    assert said == [
        {"role": "system", "content": "Be brief."},
        user("One"),
        {"role": "assistant", "content": "Two"},
        user([part("text", "Three"), part("text", "Four")]),
        {"role": "assistant", "content": "No."},
        {"role": "system", "content": "Later."},
    ]


def test_images_are_taken_from_messages_and_results() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "high"}
    taken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    said = turns(user([part("input_text", "See"), image]), called("f"), result("f", [image]))
    assert said[0] == user([part("text", "See"), taken])
    assert said[2]["content"] == [taken]


def test_files_are_taken_where_they_are_text_or_images() -> None:
    data = base64.b64encode("größer".encode()).decode()
    text = {"type": "input_file", "file_data": f"data:text/plain;base64,{data}", "filename": "a"}
    image = {"type": "input_file", "file_data": "data:image/png;base64,AA"}
    taken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    assert turns(user([text, image])) == [user([part("text", "a:\ngrößer"), taken])]


def test_what_one_reply_thought_said_and_called_is_one_turn() -> None:
    """Items of one reply reach the template as one message, results by their calls. B18."""
    said = turns(
        user("Go"),
        {"type": "reasoning", "id": "rs_1", "summary": [part("summary_text", "Hm.")]},
        {"role": "assistant", "content": [part("output_text", "I look.")]},
        called("one", '{"a": 1}'),
        called("two"),
        result("two", "2"),
        result("one", [part("input_text", "1")]),
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Really."},
    )
    assert [it["role"] for it in said] == ["user", "assistant", "tool", "tool", *["assistant"] * 2]
    assert said[1]["reasoning_content"] == "Hm."
    assert said[1]["content"] == "I look."
    names = [call["function"]["name"] for call in said[1]["tool_calls"]]
    assert names == ["one", "two"]
    assert said[1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert said[2] == {
        "role": "tool",
        "tool_call_id": "call_two",
        "name": "two",
        "content": "2",
    }
    assert said[3]["content"] == "1"
    assert [it["content"] for it in said[4:]] == ["Done.", "Really."]


def test_text_after_a_call_stays_with_its_turn() -> None:
    said = turns(user("Go"), called("f"), {"role": "assistant", "content": "I wait."})
    assert len(said) == 2
    assert said[1]["content"] == "I wait."


THOUGHTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "ours": ({"summary": [part("summary_text", "no")], "encrypted_content": seal("Hm…")}, "Hm…"),
    "foreign": ({"summary": [part("summary_text", "Hm.")], "encrypted_content": "gAAA"}, "Hm."),
    "content": ({"summary": [], "content": [part("reasoning_text", "Hm.")]}, "Hm."),
    "broken": ({"summary": [], "encrypted_content": "bushel-1.%"}, None),
    "nothing": ({"summary": []}, None),
}


@pytest.mark.parametrize("name", THOUGHTS)
def test_thoughts_come_back_in_every_form(name: str) -> None:
    """What another server has encrypted is ignored. B29."""
    item, expected = THOUGHTS[name]
    said = turns(user("Go"), {"type": "reasoning", "id": "rs", **item}, called("f"))
    assert said[1].get("reasoning_content") == expected


def test_custom_calls_are_calls_of_one_text() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "*** Begin"}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}
    said = turns(user("Go"), custom, output, tools=[PATCH])
    call = said[1]["tool_calls"][0]["function"]
    assert call == {"name": "patch", "arguments": {"input": "*** Begin"}}
    assert said[2]["content"] == "ok"


def test_the_rest_of_a_foreign_history_is_left_out() -> None:
    said = turns(
        user("Go"),
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []},
        user("On"),
    )
    assert said == [user("Go"), user("On")]


def test_a_reference_stands_for_its_item() -> None:
    known = {"id": "msg_1", "type": "message", "role": "assistant", "content": "Hi."}
    body = {"input": [user("a"), {"type": "item_reference", "id": "msg_1"}, user("b")]}
    found = conversation_of(body, find={"msg_1": known}.get)
    assert found["messages"][1] == {"role": "assistant", "content": "Hi."}
    with pytest.raises(ApiError, match="restarts") as raised:
        conversation_of(body)
    error = raised.value
    assert (error.status, error.code, error.param) == (404, "item_not_found", "input[1].id")


def test_earlier_items_come_first_without_their_instructions() -> None:
    earlier = [{"id": "msg_1", "type": "message", **user("Before")}, {**called("f"), "id": "fc_1"}]
    body = {"input": [result("f", "1")], "instructions": "Now."}
    roles = [message["role"] for message in conversation_of(body, earlier)["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]


# -- tools ------------------------------------------------------------------------------------


def names(**body: Any) -> list[str]:
    found = conversation_of({"input": "Hi", **body}).get("tools") or []
    return [it["function"]["name"] for it in found]


def test_tools_of_all_kinds_are_functions_or_left_out() -> None:
    nested = {"type": "namespace", "name": "agents", "tools": [{**LOOK, "strict": True}, PATCH]}
    form = {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}
    tools = [LOOK, nested, {"type": "web_search"}, {**PATCH, "format": form}, {"type": "new"}]
    found = conversation_of({"input": "Hi", "tools": tools})["tools"]
    assert found is not None
    functions = {it["function"]["name"]: it["function"] for it in found}
    assert list(functions) == ["look", "agents__look", "agents__patch", "patch"]
    assert functions["look"]["parameters"] == LOOK["parameters"]
    assert "strict" not in functions["look"]
    assert functions["agents__look"]["strict"] is True
    text = functions["patch"]["parameters"]["properties"]["input"]
    assert text["type"] == "string"
    assert "start: /x/" in text["description"]


def test_items_may_bring_tools() -> None:
    """As Codex does it for newer names."""
    space = {"type": "namespace", "name": "functions", "tools": [LOOK]}
    item = {"type": "additional_tools", "role": "developer", "tools": [space, PATCH]}
    assert names(input=[item, user("Hi")]) == ["look", "patch"]
    history = [user("Hi"), called("look", namespace="functions")]
    assert turns(item, *history)[1]["tool_calls"][0]["function"]["name"] == "look"
    assert turns(called("f", namespace="n"))[0]["tool_calls"][0]["function"]["name"] == "n__f"


OTHER = {**LOOK, "name": "other"}
CHOICES: dict[str, tuple[Any, list[str], Any]] = {
    "nothing": (None, ["look", "other"], "auto"),
    "auto": ("auto", ["look", "other"], "auto"),
    "none": ("none", [], None),
    "required": ("required", ["look", "other"], "required"),
    "one": ({"type": "function", "name": "other"}, ["look", "other"], {"name": "other"}),
    "some": (
        {"type": "allowed_tools", "mode": "required", "tools": [OTHER, {"type": "mcp"}]},
        ["other"],
        "required",
    ),
    "none of them": ({"type": "allowed_tools", "mode": "auto", "tools": []}, [], None),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_choice_of_tools_is_obeyed(name: str) -> None:
    choice, expected, demand = CHOICES[name]
    body = {"input": "Hi", "tools": [LOOK, OTHER], "tool_choice": choice}
    found = conversation_of({**body, "parallel_tool_calls": False})
    assert [it["function"]["name"] for it in found.get("tools") or ()] == expected
    assert found.get("tool_choice") == demand
    assert found.get("parallel") == (False if expected else None)


# -- how to answer ------------------------------------------------------------------------------


def test_shapes_and_efforts_are_passed_on() -> None:
    schema = {"type": "object"}
    form = {"type": "json_schema", "name": "a", "schema": schema, "strict": True}
    body = {"text": {"format": form}, "reasoning": {"effort": "high", "summary": "auto"}}
    found = conversation_of({"input": "Hi", **body})
    assert found["shape"] == {"json_schema": schema}
    assert found["thinking"] == {"effort": "high"}
    body = {"text": {"format": {"type": "json_object"}}, "reasoning": {"effort": "none"}}
    found = conversation_of({"input": "Hi", **body})
    assert found["shape"] == {"json_object": True}
    assert found["thinking"] == {"enabled": False}
    found = conversation_of({"input": "Hi", "text": {"format": {"type": "text"}}, "reasoning": {}})
    assert found.keys() == {"messages"}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({}, "input"),
    "a number": ({"input": 3}, "input"),
    "no items": ({"input": []}, "input"),
    "an item that is none": ({"input": ["a"]}, "input[0]"),
    "an item without a kind": ({"input": [{"a": 1}]}, "input[0].type"),
    "an unknown kind": ({"input": [user("a"), {"type": "new"}]}, "input[1].type"),
    "a lost history": (
        {"input": [{"type": "compaction", "encrypted_content": "x"}]},
        "input[0].encrypted_content",
    ),
    "a role": ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role"),
    "no content": ({"input": [{"role": "user"}]}, "input[0].content"),
    "no parts": ({"input": [user([])]}, "input[0].content"),
    "a part that is none": ({"input": [user(["a"])]}, "input[0].content[0]"),
    "a kind of part": (
        {"input": [user([part("input_text", "a"), {"type": "input_audio"}])]},
        "input[0].content[1].type",
    ),
    "a text": ({"input": [user([{"type": "input_text"}])]}, "input[0].content[0].text"),
    "an image by id": (
        {"input": [user([{"type": "input_image", "file_id": "f"}])]},
        "input[0].content[0].file_id",
    ),
    "a file by id": (
        {"input": [user([{"type": "input_file", "file_id": "f"}])]},
        "input[0].content[0].file_id",
    ),
    "a file that is no text": (
        {"input": [user([{"type": "input_file", "file_data": "data:application/pdf;base64,AA"}])]},
        "input[0].content[0].file_data",
    ),
    "a call without a name": (
        {"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]},
        "input[0].name",
    ),
    "a result of nothing": (
        {"input": [{"type": "function_call_output", "output": "a"}]},
        "input[0].call_id",
    ),
    "tools": ({"input": "a", "tools": {}}, "tools"),
    "a tool without a name": ({"input": "a", "tools": [{"type": "function"}]}, "tools[0].name"),
    "a nested tool": (
        {"input": "a", "tools": [{"type": "namespace", "name": "n", "tools": [3]}]},
        "tools[0].tools[0]",
    ),
    "parameters": ({"input": "a", "tools": [{**LOOK, "parameters": 3}]}, "tools[0].parameters"),
    "a call of nothing": ({"input": "a", "tool_choice": "required"}, "tool_choice"),
    "an unknown tool": (
        {"input": "a", "tools": [LOOK], "tool_choice": {"type": "function", "name": "b"}},
        "tool_choice",
    ),
    "a tool of OpenAI's": (
        {"input": "a", "tools": [LOOK], "tool_choice": {"type": "web_search_preview"}},
        "tool_choice",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_place(name: str) -> None:
    """A 400 whose `param` is the path of the item. B17."""
    body, param = WRONG[name]
    with pytest.raises(ApiError) as raised:
        conversation_of(body)
    assert (raised.value.status, raised.value.param) == (400, param)
    assert param in raised.value.message
