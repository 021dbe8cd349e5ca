"""Custom tools, whose input is text: any, or what a grammar allows. In chat and in responses."""

from __future__ import annotations

import re
from typing import Any

import openai
import pytest

from bushel.chat.structured_output.lark_to_regex import regex_of_lark
from tests.chat.custom_tools import GRAMMARS, GrammarCase, custom
from tests.depth import often, one_in
from tests.peers.conftest import MODEL

SHORT = {name: GRAMMARS[name] for name in ("a sum", "a query", "a date")}
PATCH = GRAMMARS["a patch"]
STREAMED = pytest.mark.parametrize("stream", often([False, True], True))


def nested(case: GrammarCase | None) -> Any:
    """As chat completions have it."""
    inner = {key: value for key, value in custom(case=case).items() if key != "type"}
    if case is not None:
        grammar = {"syntax": case.syntax, "definition": case.definition}
        inner["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": "custom", "custom": inner}


def matches(case: GrammarCase, text: str) -> bool:
    regex = case.definition if case.syntax == "regex" else regex_of_lark(case.definition)
    return re.fullmatch(regex, text) is not None


def in_chat(client: openai.OpenAI, stream: bool, case: GrammarCase | None, **more: Any) -> str:
    """The input of the one call that a reply makes."""
    asked: dict[str, Any] = {"tool_choice": {"type": "custom", "custom": {"name": "write"}}}
    asked |= {"temperature": 1, "seed": 3, "max_tokens": 120, **more}
    made: Any = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Write something."}],
        tools=[nested(case)],
        stream=stream,
        **asked,
    )
    if not stream:
        (choice,) = made.choices
        (call,) = choice.message.tool_calls
        assert (call.type, call.custom.name) == ("custom", "write")
        assert choice.finish_reason in ("tool_calls", "length")
        return str(call.custom.input)
    deltas = [call for chunk in made for call in chunk.choices[0].delta.tool_calls or []]
    first = deltas[0].model_dump()
    assert (first["type"], first["custom"]) == ("custom", {"name": "write", "input": ""})
    assert deltas[0].id
    assert not any(delta.id for delta in deltas[1:])
    assert not any(delta.function for delta in deltas)
    return "".join(delta.model_dump()["custom"]["input"] for delta in deltas)


def in_responses(client: openai.OpenAI, stream: bool, case: GrammarCase | None) -> str:
    made: Any = client.responses.create(
        model=MODEL,
        input="Write something.",
        tools=[custom(case=case)],  # type: ignore[list-item]
        tool_choice={"type": "custom", "name": "write"},
        temperature=1,
        max_output_tokens=120,
        stream=stream,
        extra_body={"seed": 3},
    )
    if stream:
        events = list(made)
        deltas = [it.delta for it in events if it.type == "response.custom_tool_call_input.delta"]
        [done] = [it for it in events if it.type == "response.custom_tool_call_input.done"]
        assert "".join(deltas) == done.input
        made = events[-1].response
    [call] = [item for item in made.output if item.type == "custom_tool_call"]
    assert call.name == "write"
    return str(call.input)


@STREAMED
@pytest.mark.parametrize("name", one_in(3, SHORT))
def test_an_input_is_what_the_grammar_allows(
    client: openai.OpenAI, name: str, stream: bool
) -> None:
    """However unlikely that is for a model that draws its tokens freely."""
    case = SHORT[name]
    for text in (in_chat(client, stream, case), in_responses(client, stream, case)):
        assert matches(case, text) or len(text) > 30, text


@pytest.mark.long
@STREAMED
def test_a_patch_is_a_patch_as_far_as_it_goes(client: openai.OpenAI, stream: bool) -> None:
    for text in (in_chat(client, stream, PATCH), in_responses(client, stream, PATCH)):
        assert re.match(r"\*\*\* Begin Patch\n\*\*\* (Add|Delete|Update) File: ", text), text


@STREAMED
def test_control_without_a_grammar_it_is_any_text(client: openai.OpenAI, stream: bool) -> None:
    for text in (in_chat(client, stream, None), in_responses(client, stream, None)):
        assert text
        assert not any(matches(case, text) for case in SHORT.values())


def test_a_stream_tells_the_same_input_as_a_whole_reply(client: openai.OpenAI) -> None:
    case = GRAMMARS["a sum"]
    assert in_chat(client, True, case) == in_chat(client, False, case)


def test_any_tool_may_be_required(client: openai.OpenAI) -> None:
    case = GRAMMARS["a date"]
    assert matches(case, in_chat(client, False, case, tool_choice="required"))
    allowed: Any = {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "write"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    assert matches(case, in_chat(client, False, case, tool_choice=choice))


def test_earlier_calls_and_their_results_are_part_of_the_conversation(
    client: openai.OpenAI,
) -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "write", "input": "xyzzy"}}
    turns: list[Any] = [
        {"role": "user", "content": "Write something."},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Done."},
    ]

    def tokens(messages: list[Any]) -> int:
        made = client.chat.completions.create(
            model=MODEL, messages=messages, tools=[nested(None)], max_tokens=1
        )
        assert made.usage is not None
        return made.usage.prompt_tokens

    longer = {**call, "custom": {"name": "write", "input": "xyzzy " * 20}}
    assert tokens([turns[0], {**turns[1], "tool_calls": [longer]}, turns[2]]) > tokens(turns) + 20
    for wrong in ({"name": "write"}, {"input": "x"}, "x", None):
        bad = [turns[0], {**turns[1], "tool_calls": [{**call, "custom": wrong}]}]
        with pytest.raises(openai.BadRequestError, match=r"messages\[1\].tool_calls\[0\].custom"):
            tokens(bad)


RECURSIVE = GrammarCase("lark", 'start: "(" start ")" | "x"', [], [])


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (RECURSIVE, "recursive"),
        (GrammarCase("lark", "once upon a time", [], []), "expected"),
        (GrammarCase("regex", "(", [], []), "tools|grammar"),
        (GrammarCase("gbnf", "x", [], []), "syntax"),
        (GrammarCase("lark", " ", [], []), "definition"),
    ],
)
def test_a_grammar_that_cannot_be_held_to_is_a_400_with_the_reason(
    client: openai.OpenAI, case: GrammarCase, why: str
) -> None:
    for ask in (in_chat, in_responses):
        with pytest.raises(openai.BadRequestError, match=why):
            ask(client, False, case)
