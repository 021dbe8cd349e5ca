"""Calls of custom tools have inputs that their grammars allow, in every tool format."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bushel.chat.reply.format_detection import detect_formats
from bushel.chat.reply.reader import Reader
from bushel.chat.reply_constraint import constraint_of
from bushel.chat.structured_output.lark_to_regex import regex_of_lark
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.core import CallPart, ReplyFormat, RequestError
from bushel.models import Preparer
from bushel.server.api.custom_tools import custom_tool
from bushel.text.grammar_compiler import compiled
from tests.chat.custom_tools import GRAMMARS, GrammarCase, custom
from tests.chat.structured_output.random_replies import host, replies, takes
from tests.chat.structured_output.test_call_grammars import CLOSING, SPECIAL
from tests.depth import one_in, rarely

CASES = [(name, False) for name in FORMATS if name != "harmony"] + [(it, True) for it in SPECIAL]


def twice(case: tuple[str, bool]) -> bool:
    """Whether it is tried with markers that are tokens, too."""
    return case[0] in SPECIAL and not case[1]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("hosts")

    @cache
    def made(special: tuple[str, ...]) -> Preparer:
        return host(Path(folder) / str(hash(special)), special)

    return made


def offered(case: GrammarCase | None) -> list[Any]:
    return [custom_tool("tools[0]", custom(case=case))]


def grammar_of(
    host: Preparer, name: str, case: GrammarCase | None, **request: Any
) -> tuple[ReplyFormat, str]:
    thinking = "harmony" if name == "harmony" else "think"
    reply_format = detect_formats("", host.tokenizer.controls, tools=name, thinking=thinking)
    asked = {"messages": [], "tools": offered(case), **request}
    constraint = constraint_of(reply_format, asked, opened=False, host=host)
    assert constraint is not None
    assert constraint.grammar is not None
    return reply_format, constraint.grammar


def inputs(reply_format: ReplyFormat, text: str, case: GrammarCase) -> list[str]:
    schema = offered(case)[0]["function"]["parameters"]
    reader = Reader(reply_format, {"write": schema})
    parts = [it for it in reader.feed(text) + reader.finish() if isinstance(it, CallPart)]
    last = max((part.index for part in parts), default=-1)
    joined = ["".join(it.json for it in parts if it.index == at) for at in range(last + 1)]
    return [json.loads(arguments)["input"] for arguments in joined]


def matches(case: GrammarCase, text: str) -> bool:
    regex = case.definition if case.syntax == "regex" else regex_of_lark(case.definition)
    return re.fullmatch(regex, text) is not None


@pytest.mark.parametrize(("name", "special"), one_in(3, rarely(CASES, twice)))
def test_a_required_call_has_an_input_that_the_grammar_allows(
    hosts: Any, name: str, special: bool
) -> None:
    it = hosts(SPECIAL[name] if special else ())
    for case in (GRAMMARS["some lines"], GRAMMARS["a sum"]):
        reply_format, grammar = grammar_of(it, name, case, tool_choice="required")
        for text in replies(it, grammar, reply_format, 2, CLOSING, end=0.5):
            given = inputs(reply_format, text, case)
            assert given, text
            for one in given:
                assert matches(case, one), (text, one)


def written(input: str) -> str:
    call = {"name": "write", "arguments": {"input": input}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def element(input: str) -> str:
    inside = f"<parameter=input>\n{input}\n</parameter>\n"
    return f"<tool_call>\n<function=write>\n{inside}</function>\n</tool_call>"


@pytest.mark.parametrize("choice", one_in(2, ["auto", "required", {"name": "write"}]))
@pytest.mark.parametrize("name", GRAMMARS)
def test_calls_are_held_to_the_grammar_whoever_wants_them(
    hosts: Any, name: str, choice: Any
) -> None:
    """Also a call that the model makes by itself; and what the grammar allows can be said."""
    case = GRAMMARS[name]
    for tools, call in (("hermes", written), ("xml", element)):
        _, grammar = grammar_of(hosts(()), tools, case, tool_choice=choice)
        for text in case.allowed:
            assert takes(hosts(()), grammar, call(text)), text
        for text in case.forbidden:
            assert not takes(hosts(()), grammar, call(text)), text


def test_control_an_input_without_a_grammar_is_free(hosts: Any) -> None:
    _, grammar = grammar_of(hosts(()), "hermes", None, tool_choice="required")
    assert all(takes(hosts(()), grammar, written(text)) for text in GRAMMARS["a sum"].forbidden)
    free = {"messages": [], "tools": offered(None)}
    assert constraint_of(ReplyFormat("hermes"), free, opened=False, host=hosts(())) is None


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (GrammarCase("lark", 'start: "(" start ")" | "x"', [], []), "recursive"),
        (GrammarCase("lark", "once upon a time", [], []), "expected"),
        (GrammarCase("regex", "a" * 5000, [], []), "characters"),
    ],
)
def test_a_grammar_that_cannot_be_held_to_is_refused_with_the_reason(
    hosts: Any, case: GrammarCase, why: str
) -> None:
    with pytest.raises(RequestError, match=why) as refused:
        grammar_of(hosts(()), "hermes", case)
    assert (refused.value.code, refused.value.param) == ("invalid_grammar", "tools")


@pytest.mark.parametrize("regex", ["(", "(?=a)a", r"(a)\1"])
def test_an_expression_that_is_none_does_not_compile(hosts: Any, regex: str) -> None:
    _, grammar = grammar_of(hosts(()), "hermes", GrammarCase("regex", regex, [], []))
    with pytest.raises(RequestError):
        compiled(hosts(()).profile.grammar_tokens, grammar)
