"""Answers of a given form, with and without thoughts before them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bushel.chat.reply.format_detection import detect_formats
from bushel.chat.reply.reader import Reader
from bushel.chat.reply.thinking_formats import THINKING_FORMATS
from bushel.chat.reply_constraint import constraint_of
from bushel.core import ReplyFormat, RequestError, TextDelta, ThoughtDelta
from bushel.models import Preparer
from bushel.text.grammar_compiler import compiled
from tests.chat.structured_output.random_replies import host, replies, takes
from tests.chat.structured_output.test_call_grammars import HARMONY, TOOLS
from tests.depth import one_in

SHAPES: dict[str, tuple[Any, Any]] = {
    "json_schema": (
        {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]},
        lambda text: json.loads(text)["a"] in (1, 2),
    ),
    "json_object": (True, lambda text: isinstance(json.loads(text), dict)),
    "regex": ("^[a-c]{2}/x$", lambda text: re.fullmatch("[a-c]{2}/x", text)),
    "choice": (["yes", "no way"], lambda text: text in ("yes", "no way")),
    "grammar": ('start: "x" /[0-9]{1,3}/', lambda text: re.fullmatch("x[0-9]{1,3}", text)),
}
GBNF = """
root   ::= "x" number ("," number)*   # as llama.cpp writes it
number ::= [0-9]{1,3}
"""
TAG = {
    "structures": [
        {"begin": "<f=one>", "schema": {"enum": [1, 2]}, "end": "</f>"},
        {"begin": "<f=two>", "schema": {"type": "boolean"}, "end": "</f>"},
        {"begin": "[[", "schema": {"type": "string", "maxLength": 3}, "end": "]]"},
    ],
    "triggers": ["<f=", "[["],
}
TOKENS = {
    "harmony": HARMONY,
    "gemma": ("<|channel>", "<channel|>"),
    "solar": ("<|think|>", "<|end|>", "<|begin|>", "<|content|>"),
    "kimi-k3": ("<|open|>", "<|sep|>", "<|close|>"),
    "mistral": ("[THINK]", "[/THINK]"),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Preparer:
    return host(Path(tmp_path_factory.mktemp("plain")))


@pytest.mark.parametrize("form", one_in(3, THINKING_FORMATS))
def test_an_answer_has_its_form_behind_thoughts(form: str, tmp_path: Path) -> None:
    """Thoughts that the prompt has begun must end; others may come or not. B29."""
    it = host(tmp_path, TOKENS.get(form, ()))
    reply_format = detect_formats("", it.tokenizer.controls, thinking=form)
    hints = [
        *THINKING_FORMATS[form].ends,
        *THINKING_FORMATS[form].endings,
        "<|end|><|start|>assistant",
        '"}',
        "}",
        '"',
    ]
    for shape, (value, good) in SHAPES.items():
        for opened in (False, True):
            request = {"messages": [], "shape": {shape: value}}
            constraint = constraint_of(reply_format, request, opened=opened, host=it)
            assert constraint is not None
            for text in replies(it, constraint.grammar or "", reply_format, 2, hints):
                reader = Reader(reply_format, {}, opened=opened)
                deltas = reader.feed(text) + reader.finish()
                said = "".join(part.text for part in deltas if isinstance(part, TextDelta))
                assert good(said.strip()), (shape, text)


@pytest.mark.parametrize("form", one_in(3, THINKING_FORMATS))
def test_a_budget_closes_thoughts_as_the_grammar_allows(form: str, tmp_path: Path) -> None:
    it = host(tmp_path, TOKENS.get(form, ()))
    reply_format = detect_formats("", it.tokenizer.controls, thinking=form)
    request = {"shape": {"choice": ["yes"]}, "thinking": {"budget": 3}}
    constraint = constraint_of(reply_format, request, opened=True, host=it)
    assert constraint is not None
    assert constraint.budget is not None
    matcher = compiled(it.profile.grammar_tokens, constraint.grammar or "")
    assert matcher.consume_tokens(it.tokenizer.encode("abc", add_special_tokens=False))
    assert matcher.consume_tokens(list(constraint.budget.closing))
    reader = Reader(reply_format, {}, opened=True)
    closed = "".join(
        dict(reply_format.markers).get(token) or it.tokenizer.decode([token])
        for token in constraint.budget.closing
    )
    deltas = reader.feed(f"abc{closed}yes") + reader.finish()
    assert "".join(part.text for part in deltas if isinstance(part, ThoughtDelta)).strip() == "abc"


def test_no_thoughts_come_where_thinking_is_off(plain: Preparer) -> None:
    request = {"shape": {"choice": ["yes"]}, "thinking": {"enabled": False}}
    reply_format = ReplyFormat("hermes", "think")
    off = constraint_of(reply_format, request, opened=False, host=plain)
    on = constraint_of(reply_format, {"shape": {"choice": ["yes"]}}, opened=False, host=plain)
    assert off is not None
    assert on is not None
    thoughtful = "<think>Hm.</think>\n\nyes"
    assert not takes(plain, off.grammar or "", thoughtful)
    assert takes(plain, on.grammar or "", thoughtful)


def test_an_answer_or_a_call_where_both_are_possible(plain: Preparer) -> None:
    request = {"shape": {"choice": ["yes"]}, "tools": TOOLS}
    constraint = constraint_of(ReplyFormat("hermes"), request, opened=False, host=plain)
    assert constraint is not None
    call = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    for text, good in (("yes", True), (call, True), ("no", False), (f"{call}yes", False)):
        assert takes(plain, constraint.grammar or "", text) == good, text


def test_json_is_written_on_one_line(plain: Preparer) -> None:
    constraint = constraint_of(
        ReplyFormat(), {"shape": {"json_object": True}}, opened=False, host=plain
    )
    assert constraint is not None
    for text, good in (
        ('{"a": 1, "b": [1, 2]}', True),
        ('{"a":1,"b":[1,2]}', True),
        ('{"a":  1}', False),
        ('{\n"a": 1}', False),
    ):
        assert takes(plain, constraint.grammar or "", text) == good, text


@pytest.mark.parametrize(
    "shape",
    [
        {},
        [],
        {"regex": ""},
        {"regex": "a", "choice": ["b"]},
        {"choice": []},
        {"choice": [1]},
        {"grammar": " "},
        {"json_schema": [1]},
        {"regex": "a" * 5000},
        {"choice": ["a"] * 5000},
        {"grammar": "x" * 70_000},
    ],
)
def test_what_is_no_form_of_an_answer_is_refused(plain: Preparer, shape: Any) -> None:
    with pytest.raises(RequestError) as refused:
        constraint_of(ReplyFormat(), {"shape": shape}, opened=False, host=plain)
    assert refused.value.param == "response_format"


def test_text_that_a_tokenizer_would_change_can_be_said(plain: Preparer) -> None:
    """The tiny model's composes accents: e and an accent become one letter."""
    texts = ["cafe\u0301", "\u00e9t\u00e9"]
    for shape in ({"choice": texts}, {"json_schema": {"enum": texts}}):
        constraint = constraint_of(ReplyFormat(), {"shape": shape}, opened=False, host=plain)
        assert constraint is not None
        found = replies(plain, constraint.grammar or "", ReplyFormat(), 40, [])
        assert {text.strip('"') for text in found} == set(texts)


def test_half_a_character_is_refused(plain: Preparer) -> None:
    for shape in ({"choice": ["\ud800"]}, {"json_schema": {"enum": ["\ud800"]}}):
        with pytest.raises(RequestError, match="half of a character"):
            constraint_of(ReplyFormat(), {"shape": shape}, opened=False, host=plain)


def test_a_tokenizer_whose_tokens_nobody_can_tell_is_named(
    plain: Preparer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain.tokenizer, "as_json", lambda: None)
    with pytest.raises(RequestError, match="tokenizers library"):
        constraint_of(ReplyFormat(), {"shape": {"json_object": True}}, opened=False, host=plain)


@pytest.mark.parametrize(
    ("text", "good"),
    [("x1", True), ("x1,22,333", True), ("x", False), ("x1234", False), ("x1,", False)],
)
def test_grammars_are_in_gbnf_too(text: str, good: bool, plain: Preparer) -> None:
    """As clients of llama.cpp write them. B71."""
    constraint = constraint_of(
        ReplyFormat(), {"shape": {"grammar": GBNF}}, opened=False, host=plain
    )
    assert constraint is not None
    assert takes(plain, constraint.grammar or "", text) == good


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("", True),
        ("Some words < and [ more.", True),
        ("First <f=one>2</f> then <f=two>true</f> and the end.", True),
        ('<f=one>1</f>[["ab"]]', True),
        ("<f=one>3</f>", False),
        ("<f=two>1</f>", False),
        ("<f=three>1</f>", False),
        ("<f=one>1", False),
        ('[["long"]]', False),
    ],
)
def test_words_begin_what_has_a_form_in_free_text(text: str, good: bool, plain: Preparer) -> None:
    """Structural tags, as clients of vLLM and SGLang send them. B71."""
    request = {"shape": {"structural_tag": TAG}}
    constraint = constraint_of(ReplyFormat(), request, opened=False, host=plain)
    assert constraint is not None
    assert takes(plain, constraint.grammar or "", text) == good


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ({"grammar": 'root ::= "a'}, "no grammar in GBNF"),
        ({"grammar": "root ::= other"}, "no grammar in GBNF"),
        ({"grammar": "root ::= " + "(" * 5000 + '"a"' + ")" * 5000}, "too complex|brackets"),
        ({"structural_tag": {"structures": [], "triggers": ["a"]}}, "structures and triggers"),
        ({"structural_tag": {"structures": [{"begin": "b"}], "triggers": ["a"]}}, "a trigger"),
        ({"structural_tag": {"structures": [{}], "triggers": ["a"]}}, "a begin and an end"),
        ({"structural_tag": {**TAG, "triggers": [""]}}, "triggers that are texts"),
        ({"structural_tag": {**TAG, "triggers": ["a"] * 300}}, "structural tags"),
    ],
    ids=str,
)
def test_what_is_no_grammar_is_told(shape: Any, why: str, plain: Preparer) -> None:
    with pytest.raises(RequestError, match=why):
        constraint_of(ReplyFormat(), {"shape": shape}, opened=False, host=plain)
