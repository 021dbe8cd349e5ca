"""A grammar in Lark's notation as one regular expression, or a reason why there is none."""

from __future__ import annotations

import re

import pytest

from bushel.chat.structured_output.lark_notation import NotLark
from bushel.chat.structured_output.lark_to_regex import regex_of_lark
from tests.chat.custom_tools import GRAMMARS

LARK = {name: case for name, case in GRAMMARS.items() if case.syntax == "lark"}


@pytest.mark.parametrize("name", LARK)
def test_the_expression_matches_what_the_grammar_allows(name: str) -> None:
    case = LARK[name]
    regex = re.compile(regex_of_lark(case.definition))
    assert [text for text in case.allowed if not regex.fullmatch(text)] == []
    assert [text for text in case.forbidden if regex.fullmatch(text)] == []


@pytest.mark.parametrize(
    ("definition", "allowed", "forbidden"),
    [
        ('start: start "," X | X\nX: "x"', ["x", "x,x,x"], ["", "x,", ",x"]),
        ('start: X "," start | X\nX: "x"', ["x", "x,x,x"], ["", "x,", ",x"]),
        ('start: start "+" start | start "!" | "x"', ["x", "x+x!+x", "x!!"], ["x+", "+x", "!"]),
        ('start: "a"?"b"', ["ab", "b"], ["a", "aab"]),
        ('start: "a" \\\n "b"\n  | "c"', ["ab", "c"], ["a"]),
        ('start: ("a"\n | "b")+', ["ab", "bba"], [""]),
        ("start: /a\\/b/i", ["a/b", "A/B"], ["ab"]),
        ("start: WORD\n%import common (WORD, INT)\n", ["Word"], ["1"]),
        ("start: W\n%import common.WORD -> W", ["Word"], ["1"]),
        ('start.2: "\\u0041\\x42\\"\\\\"', ['AB"\\'], ["AB"]),
        ('# what it is\nstart: "a" // this\n', ["a"], ["a "]),
    ],
)
def test_notation(definition: str, allowed: list[str], forbidden: list[str]) -> None:
    regex = re.compile(regex_of_lark(definition))
    assert [text for text in allowed if not regex.fullmatch(text)] == []
    assert [text for text in forbidden if regex.fullmatch(text)] == []


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ('start: "(" start ")" | "x"', "recursive: 'start'"),
        ('start: a\na: b "x"\nb: a | "y"', "recursive: 'a'"),
        ('start: start "a" | "b" start | "c"', "at its beginning and at its end"),
        ('start: start "a"', "endless"),
        ('begin: "x"', "no rule called start"),
        ("start: other", "no rule called 'other'"),
        ('start: "a"\nstart: "b"', "twice"),
        ('start: ""', "optional"),
        ('start: "z".."a"', "range"),
        ('start: "a"~3..2', "repetition"),
        ("%import python.NAME\nstart: NAME", "imports python.NAME"),
        ("%declare A\nstart: A", "%declare"),
        ("start: <|token|>", "not Lark"),
        ("once upon a time", "':' is expected"),
        ("start: " + "(" * 300, "deep"),
        ("start: " + "a" * 70_000, "characters"),
        (
            "start: a0\n" + "".join(f"a{n}: a{n + 1} a{n + 1}\n" for n in range(30)) + 'a30: "x"',
            "large",
        ),
        ("start: a0\n" + "".join(f"a{n}: a{n + 1}\n" for n in range(900)) + 'a900: "x"', "deep"),
    ],
)
def test_what_cannot_be_one_is_refused_with_the_reason(definition: str, why: str) -> None:
    with pytest.raises(NotLark, match=re.escape(why)):
        regex_of_lark(definition)
