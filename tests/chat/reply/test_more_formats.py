"""Calls in the formats of many models, with arguments of every kind (B24, B25, B26, B27)."""

# DeepSeek's bars are wide ones.
# ruff: noqa: RUF001

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.chat.reply.format_detection import detect_formats
from bushel.chat.reply.reader import Reader
from bushel.chat.tool_parsers.registry import FORMATS
from bushel.core import ReplyFormat
from tests.chat.reply import more_sample_replies
from tests.chat.reply.sample_replies import EXAMPLES, Example, Said, read
from tests.chat.templates import REAL
from tests.depth import one_in

pytestmark = pytest.mark.corpus

assert more_sample_replies  # its examples are among the others
NAMES = {*FORMATS} - {"harmony", "xml", "hermes", "pythonic", "llama", "generic"}
MINE = [example for example in EXAMPLES if example.tools in NAMES]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "on": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "deep": {
            "type": "object",
            "properties": {
                "word": {"type": "string"},
                "rows": {"type": "array", "items": {"type": "integer"}},
            },
        },
    },
}
OFFERED = {"read": SCHEMA, "write-it.2": SCHEMA}

# All that could be taken for markup, but for the markers themselves.
words = st.lists(
    st.sampled_from([*"{}[]\"'\\:,<>/|=& \n\t", "a", "é", "日本", "🙂", "null", "5", "\\n"]),
    max_size=8,
).map("".join)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "path": words,
        "count": st.integers(-(10**12), 10**12),
        "share": st.floats(-1e6, 1e6, allow_nan=False).filter(lambda x: not x.is_integer()),
        "on": st.booleans(),
        "names": st.lists(words, max_size=3),
        "deep": st.fixed_dictionaries(
            {}, optional={"word": words, "rows": st.lists(st.integers(-5, 5), max_size=3)}
        ),
    },
)
calls = st.lists(st.tuples(st.sampled_from(sorted(OFFERED)), arguments), min_size=1, max_size=3)
Calls = list[tuple[str, dict[str, Any]]]


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(value: Any) -> str:
    return value if isinstance(value, str) else dumped(value)


def mistral(made: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{dumped(given)}" for name, given in made)


def mistral_list(made: Calls) -> str:
    objects = [{"name": name, "arguments": given, "id": "abcdefghi"} for name, given in made]
    return f"[TOOL_CALLS]{dumped(objects)}"


def deepseek(made: Calls) -> str:
    each = (
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{dumped(given)}\n```"
        "<｜tool▁call▁end｜>"
        for name, given in made
    )
    return "<｜tool▁calls▁begin｜>" + "\n".join(each) + "<｜tool▁calls▁end｜>"


def kimi(made: Calls) -> str:
    each = (
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{dumped(given)}"
        "<|tool_call_end|>"
        for index, (name, given) in enumerate(made)
    )
    return f"<|tool_calls_section_begin|>{''.join(each)}<|tool_calls_section_end|>"


def kimi3(made: Calls) -> str:
    def argument(key: str, value: Any) -> str:
        kind = {str: "string", bool: "boolean", list: "array", dict: "object"}.get(type(value))
        return (
            f'<|open|>argument key="{key}" type="{kind or "number"}"<|sep|>{plain(value)}'
            "<|close|>argument<|sep|>"
        )

    each = (
        f'<|open|>call tool="{name}" index="{index}"<|sep|>'
        + "".join(argument(key, value) for key, value in given.items())
        + "<|close|>call<|sep|>"
        for index, (name, given) in enumerate(made)
    )
    return f"<|open|>tools<|sep|>{''.join(each)}<|close|>tools<|sep|>"


def glm(made: Calls) -> str:
    def call(name: str, given: dict[str, Any]) -> str:
        pairs = "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{plain(value)}</arg_value>\n"
            for key, value in given.items()
        )
        return f"<tool_call>{name}\n{pairs}</tool_call>"

    return "\n".join(call(name, given) for name, given in made)


def minimax(made: Calls) -> str:
    def call(name: str, given: dict[str, Any]) -> str:
        values = "".join(
            f'<parameter name="{key}">{plain(value)}</parameter>\n' for key, value in given.items()
        )
        return f'<invoke name="{name}">\n{values}</invoke>\n'

    each = "".join(call(name, given) for name, given in made)
    return f"<minimax:tool_call>\n{each}</minimax:tool_call>"


def minimax3(made: Calls) -> str:
    mark = "]<]minimax[>["

    def element(value: Any) -> str:
        if isinstance(value, dict):
            return "".join(f"{mark}<{k}>{element(v)}{mark}</{k}>" for k, v in value.items())
        if isinstance(value, list):
            return "".join(f"{mark}<item>{element(item)}{mark}</item>" for item in value)
        return plain(value)

    each = (f'{mark}<invoke name="{n}">{element(a)}{mark}</invoke>\n' for n, a in made)
    return f"{mark}<tool_call>\n{''.join(each)}{mark}</tool_call>"


def gemma(made: Calls) -> str:
    def value(of: Any) -> str:
        if isinstance(of, str):
            return f'<|"|>{of}<|"|>'
        if isinstance(of, dict):
            return "{" + ",".join(f"{key}:{value(inner)}" for key, inner in of.items()) + "}"
        if isinstance(of, list):
            return "[" + ",".join(map(value, of)) + "]"
        return dumped(of)

    return "".join(f"<|tool_call>call:{name}{value(given)}<tool_call|>" for name, given in made)


def granite(made: Calls) -> str:
    return f"<|tool_call|>{dumped([{'name': name, 'arguments': given} for name, given in made])}"


def harmony(made: Calls) -> str:
    each = (
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{dumped(given)}"
        "<|call|>"
        for name, given in made
    )
    return "<|start|>assistant".join(each)


WRITERS: dict[str, tuple[str, Callable[[Calls], str]]] = {
    "mistral": ("mistral", mistral),
    "mistral list": ("mistral", mistral_list),
    "deepseek": ("deepseek", deepseek),
    "kimi": ("kimi", kimi),
    "kimi 3": ("kimi3", kimi3),
    "glm": ("glm", glm),
    "minimax": ("minimax", minimax),
    "minimax 3": ("minimax3", minimax3),
    "gemma": ("gemma", gemma),
    "granite": ("granite", granite),
    "harmony": ("harmony", harmony),
}
each_writer = pytest.mark.parametrize("writer", WRITERS)


def reader(tools: str, offered: dict[str, Any] = OFFERED) -> Reader:
    return Reader(ReplyFormat(tools, "harmony" if tools == "harmony" else ""), offered)


def found(said: Said) -> Calls:
    assert all(call.complete for call in said.calls)
    return [(call.name, call.arguments) for call in said.calls]


@each_writer
@settings(max_examples=30)
@given(made=calls, places=st.lists(st.integers(0, 3000), max_size=6))
def test_arguments_arrive_as_they_were_meant(writer: str, made: Calls, places: list[int]) -> None:
    """Braces, quotes, escapes and newlines inside values, however the text is cut. B25, B26."""
    tools, write = WRITERS[writer]
    text = write(made)
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges) if a < b]
    said = read(reader(tools), pieces)
    assert found(said) == made
    assert said.text == ""


@each_writer
@settings(max_examples=10)
@given(made=calls, place=st.integers(0, 3000))
def test_a_call_that_is_cut_off_is_not_made_valid(writer: str, made: Calls, place: int) -> None:
    """The arguments are a beginning of the whole ones, and complete only if they are whole. B24."""
    tools, write = WRITERS[writer]
    text = write(made)
    whole = read(reader(tools), [text])
    cut = read(reader(tools), [text[: place % len(text)]])
    for call, meant in zip(cut.calls, whole.calls, strict=False):
        assert meant.json.startswith(call.json)
        assert call.complete == (call.json == meant.json)


@pytest.mark.parametrize("example", one_in(3, MINE), ids=str)
def test_a_call_of_a_tool_that_was_not_offered_is_text(example: Example) -> None:
    """As it was generated, to the last marker, and wherever the reply ends. B27."""
    offered = {"other": SCHEMA}
    assert read(reader(example.tools, offered), [example.reply]).text == example.reply
    for place in range(0, len(example.reply), 7):
        said = read(reader(example.tools, offered), [example.reply[:place], example.reply[place:]])
        assert said.text == example.reply
        said = read(reader(example.tools, offered), [example.reply[:place]])
        assert (said.text, said.calls) == (example.reply[:place], [])


@pytest.mark.parametrize(
    ("tools", "reply"),
    one_in(2, [
        ("gemma", "<|tool_call>call:read{names:" + "[" * 20_000),
        ("gemma", "<|tool_call>call:read{" + "deep:{" * 20_000),
        ("minimax3", ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="read">'
         + "]<]minimax[>[<deep>" * 20_000),
        ("mistral", "[TOOL_CALLS]read[ARGS]" + '{"deep":' * 20_000),
        ("granite", '<|tool_call|>[{"name": "read", "arguments": ' + "[" * 20_000),
        ("harmony", "<|channel|>" * 20_000),
        ("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>" + "a" * 100_000),
    ]),
    ids=lambda value: value[:20],
)  # fmt: skip
def test_endless_repetition_is_read_to_its_end(tools: str, reply: str) -> None:
    """A model that goes round in circles makes no call that looks valid. B24."""
    said = read(reader(tools), [reply[at : at + 1000] for at in range(0, len(reply), 1000)])
    assert not any(call.complete for call in said.calls)


@pytest.mark.parametrize("writer", ["deepseek", "kimi", "harmony"])
@pytest.mark.parametrize("closed", [True, False])
def test_arguments_that_are_not_closed_end_at_the_next_marker(writer: str, closed: bool) -> None:
    """They do not swallow what comes behind them; the same text with its brace is whole. B24."""
    tools, write = WRITERS[writer]
    text = write([("read", {"path": "}"}), ("read", {"path": "b"})])
    text = text if closed else text.replace('"}"}', '"}"', 1)
    said = read(reader(tools), text)
    assert [call.complete for call in said.calls] == [closed, True]
    assert said.text == ""


PARSERS = {
    "glm": "glm47",
    "kimi": "kimi_k2",
    "kimi 3": "kimi_k3",
    "minimax": "minimax_m2",
    "gemma": "gemma4",
    "mistral list": "mistral",
    "mistral": "mistral",
}
# What the library's parsers do not lose: they strip values, and guess at what looks like markup.
tame = st.text(st.sampled_from("abcé日 {}[],'\"\\:"), min_size=1, max_size=8).filter(
    lambda text: text == text.strip()
)
tame_calls = st.lists(
    st.tuples(
        st.just("read"),
        st.fixed_dictionaries(
            {"path": tame, "count": st.integers(-9, 9)}, optional={"on": st.booleans()}
        ),
    ),
    min_size=1,
    max_size=2,
)


@pytest.mark.parametrize("writer", PARSERS)
@settings(max_examples=20)
@given(made=tame_calls)
def test_calls_are_those_that_the_library_finds(writer: str, made: Calls) -> None:
    """They are those of mlx-lm's own parsers, which read a section when it is complete. B25."""
    library = importlib.import_module(f"mlx_lm.tool_parsers.{PARSERS[writer]}")
    tools, write = WRITERS[writer]
    offered = [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]
    expected: Calls = []
    text = write(made)
    for part in text.split(library.tool_call_start)[1:]:
        body = part.partition(library.tool_call_end)[0] if library.tool_call_end else part
        parsed = library.parse_tool_call(body, offered)
        for call in parsed if isinstance(parsed, list) else [parsed]:
            expected.append((call["name"], call["arguments"]))
    assert found(read(reader(tools), [text])) == expected


@dataclass(frozen=True)
class Written:
    """A real template that writes calls, and how it wants them."""

    name: str
    template: str
    as_text: bool  # arguments are JSON in a string
    content: str | None  # of a message with calls

    @property
    def tools(self) -> str:
        return detect_formats(self.template, {}).tools

    def render(self, made: Calls) -> str:
        """What it writes for an assistant that made the calls, and what it writes behind."""
        from transformers.utils.chat_template_utils import render_jinja_template

        functions = ({"name": name, "description": "d", "parameters": SCHEMA} for name in OFFERED)
        said = [
            {"name": name, "arguments": dumped(given) if self.as_text else given}
            for name, given in made
        ]
        calls = [
            {"id": f"callid00{index}", "type": "function", "function": call}
            for index, call in enumerate(said)
        ]
        results = (
            {"role": "tool", "tool_call_id": call["id"], "name": name, "content": "found"}
            for call, (name, _) in zip(calls, made, strict=True)
        )
        talk = [
            {"role": "user", "content": "THE QUESTION"},
            {"role": "assistant", "content": self.content, "tool_calls": calls},
            *results,
        ]
        texts, _ = render_jinja_template(
            conversations=[talk],
            tools=[{"type": "function", "function": function} for function in functions],
            chat_template=self.template,
            bos_token="",
            eos_token="",
        )
        return texts[0].partition("THE QUESTION")[2]

    def works(self) -> bool:
        try:
            return "ab12" in self.render([("read", {"path": "ab12"})])
        except Exception:  # templates refuse in every way there is
            return False


# Phi 4's template writes calls in another way than it tells the model to.
OTHERWISE = ("functools",)
# These write the first of several calls.
SINGLE = ("harmony", "gigachat")


@cache
def corpus() -> list[Written]:
    found = []
    for name, template in REAL.items():
        if detect_formats(template, {}).tools not in {*NAMES, "harmony"} - {*OTHERWISE}:
            continue
        ways = product((False, True), ("", None))
        forms = (Written(name, template, as_text, content) for as_text, content in ways)
        found += [form for form in forms if form.works()][:1]
    return found


@pytest.mark.skipif(not REAL, reason="no folder of real templates")
@settings(max_examples=8)
@given(made=st.lists(st.tuples(st.just("read"), arguments), min_size=1, max_size=2))
def test_what_a_template_writes_for_calls_is_read_as_those_calls(made: Calls) -> None:
    """Models write calls the way their templates write them. B18, B25."""
    for form in corpus():
        meant = made[:1] if form.tools in SINGLE else made
        assert found(read(reader(form.tools), [form.render(meant)])) == meant, form.name


@pytest.mark.skipif(len(REAL) < 100, reason="not the whole folder of real templates")
def test_real_templates_of_most_formats_are_read() -> None:
    """The test above has something to test. B25."""
    read_here = {form.tools for form in corpus()}
    assert read_here >= {*NAMES, "harmony"} - {*OTHERWISE, "longcat"}
