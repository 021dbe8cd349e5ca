"""Every tool format of the registry has its four parts, and they agree with one another (B25)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bushel.chat.reply.format_detection import detect_formats
from bushel.chat.reply.reader import Reader
from bushel.chat.reply_constraint import constraint_of
from bushel.chat.structured_output.lark import Lark
from bushel.chat.template.inline_calls import inline_calls_of, inlined
from bushel.chat.tool_parsers.generic import GENERIC
from bushel.chat.tool_parsers.grammar.call_form import CallForm, ToolGrammar
from bushel.chat.tool_parsers.grammar.object_calls import separate_objects
from bushel.chat.tool_parsers.hermes import HERMES
from bushel.chat.tool_parsers.kimi import KIMI
from bushel.chat.tool_parsers.reading.json_objects import objects_section
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.chat.tool_parsers.tool_format import (
    BY_TEMPLATE,
    CallSection,
    Detection,
    InlineCalls,
    ToolFormat,
    WrittenCall,
)
from bushel.models import Preparer
from bushel.text.template_abilities import Abilities
from tests.chat.reply.sample_replies import read
from tests.chat.structured_output.random_replies import host, replies
from tests.depth import one_in

ARGUMENTS: dict[str, Any] = {
    "path": "a b.txt",
    "count": 7,
    "share": 0.5,
    "on": False,
    "tags": ["x", "y"],
    "deep": {"word": "z"},
    "none": None,
}
# No other call than this one is allowed.
TOOL = {
    "name": "edit",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {name: {"const": value} for name, value in ARGUMENTS.items()},
        "required": list(ARGUMENTS),
        "additionalProperties": False,
    },
}
OFFERED: dict[str, Any] = {"edit": TOOL["parameters"]}
Call = tuple[str, Any]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Preparer:
    return host(Path(tmp_path_factory.mktemp("host")) / "plain", ())


def missing(format: ToolFormat) -> Iterator[str]:
    """Parts that a format does not really have."""
    known = format.detect.signs or format.detect.model_types
    if not known and format is not GENERIC:
        yield "detect"
    starts = format.starts or ([""] if format.whole_reply else [])
    sections = [format.section(start, {}, 0) for start in starts]
    if not sections or not all(isinstance(section, CallSection) for section in sections):
        yield "section"
    form = format.grammar(Lark({}), [ToolGrammar("edit", {"type": "object"}, True)], "".__eq__)
    if not isinstance(form, CallForm) or len(form.bodies) != 1:
        yield "grammar"
    history = format.history
    inline = isinstance(history, InlineCalls) and history.control in format.starts
    if history != BY_TEMPLATE and not inline:
        yield "history"


def calls_in(name: str, text: str) -> list[Call]:
    """Complete calls of a reply, if it says nothing else."""
    reply_format = detect_formats("", {}, tools=name)
    said = read(Reader(reply_format, OFFERED), [text])
    whole = not said.text and all(call.complete for call in said.calls)
    return [(call.name, call.arguments) for call in said.calls] if whole else []


def forced(plain: Preparer, name: str) -> list[str]:
    """Replies that must call the tool, in a format."""
    request = {"messages": [], "tools": [{"function": TOOL}], "tool_choice": {"name": "edit"}}
    reply_format = detect_formats("", {}, tools=name)
    constraint = constraint_of(reply_format, request, opened=name == "harmony", host=plain)
    assert constraint is not None
    hints = ["<|end|><|start|>assistant"]
    return replies(plain, constraint.grammar or "", reply_format, 3, hints, end=1.0)


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
def test_every_format_has_its_four_parts(format: ToolFormat) -> None:
    assert list(missing(format)) == []
    assert FORMATS[format.name] is format


def test_control_a_part_that_is_missing_is_reported() -> None:
    assert list(missing(replace(HERMES, detect=Detection()))) == ["detect"]
    assert list(missing(replace(HERMES, starts=()))) == ["section"]
    nothing: Any = lambda lark, tools, knows: CallForm([])  # noqa: E731
    assert list(missing(replace(HERMES, grammar=nothing))) == ["grammar"]
    other = replace(HERMES, history=KIMI.history)
    assert list(missing(other)) == ["history"]
    unsaid: Any = None
    assert list(missing(replace(HERMES, history=unsaid))) == ["history"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_detected_by_what_it_says_of_itself(name: str) -> None:
    detect = FORMATS[name].detect
    for sign in detect.signs:
        assert detect_formats(f"{{{{ messages }}}}{sign}", {}).tools == name
        assert detect_formats("", {}, shown=f"Hello {sign}").tools == name
    for model_type in detect.model_types:
        assert detect_formats("", {}, {"model_type": model_type}).tools == name
    if not (detect.signs or detect.model_types):
        assert detect_formats("", {}).tools == name


@pytest.mark.parametrize("name", one_in(3, FORMATS))
def test_a_forced_call_is_read_as_that_call(plain: Preparer, name: str) -> None:
    for text in forced(plain, name):
        inside = text.partition("<|start|>assistant")[2] if name == "harmony" else text
        assert calls_in(name, inside) == [("edit", ARGUMENTS)], text


def test_control_another_formats_call_is_not(
    plain: Preparer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "hermes", replace(HERMES, grammar=KIMI.grammar))
    for text in forced(plain, "hermes"):
        assert calls_in("hermes", text) == []


WRITTEN = [name for name, format in FORMATS.items() if format.history != BY_TEMPLATE]
HISTORY: list[Call] = [
    ("edit", {"path": 'a "b" \\ é\n', "deep": {"a": [1.5, True, None, {}]}, "tags": []}),
    ("edit", {}),
]


def written(name: str, calls: Sequence[Call]) -> str:
    """Calls of an earlier turn, as a part of its text."""
    history = FORMATS[name].history
    assert isinstance(history, InlineCalls)
    made = [
        {"id": f"functions.{called}:{at}", "function": {"name": called, "arguments": arguments}}
        for at, (called, arguments) in enumerate(calls)
    ]
    [turn] = inlined([{"role": "assistant", "content": "", "tool_calls": made}], history)
    return str(turn["content"])


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_into_a_prompt_is_read_as_those_calls(name: str) -> None:
    assert calls_in(name, written(name, HISTORY)) == HISTORY


def test_control_some_formats_are_written_here_and_by_others_not_at_all() -> None:
    assert {"pythonic", "kimi", "granite"} <= set(WRITTEN)
    assert calls_in("granite", written("kimi", HISTORY)) != HISTORY


# -- one more --------------------------------------------------------------------------------------


def _write(calls: Sequence[WrittenCall]) -> str:
    return "".join(f"<<{json.dumps(call['function'])}>>" for call in calls)


ANGLES = ToolFormat(
    name="angles",
    detect=Detection(signs=("<<{",)),
    starts=("<<",),
    section=objects_section((">>",)),
    grammar=separate_objects("<<", ">>", "\n"),
    history=InlineCalls("<<", _write),
    markup=(">>",),
)


def test_one_more_format_is_its_value_and_its_line(
    plain: Preparer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "angles" not in FORMATS
    monkeypatch.setitem(FORMATS, "angles", ANGLES)
    assert list(missing(ANGLES)) == []
    assert detect_formats("{{ '<<{' }}", {"<<": 5}).markers == ((5, "<<"),)
    for text in forced(plain, "angles"):
        assert text.startswith("<<")
        assert calls_in("angles", text) == [("edit", ARGUMENTS)]
    can = Abilities(tools="nested", results=True)
    assert inline_calls_of({"<<": 5}, can) is ANGLES.history
    assert calls_in("angles", written("angles", HISTORY)) == HISTORY
