"""Parameters keep their type, and schemas decide (B26)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.chat.tool_parsers.reading.argument_values import (
    JsonSpan,
    as_json,
    escaped,
    is_text,
    kinds,
    parameter,
)

STRING = {"type": "string"}
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", None, 5),
        ("[1, 2]", None, [1, 2]),
        ('{"a": null}', None, {"a": None}),
        ("true", {}, True),
        ("True", None, "True"),
        ("two words", None, "two words"),
        ('"quoted"', None, "quoted"),
        ("NaN", None, "NaN"),
        ("5", STRING, "5"),
        ('"quoted"', STRING, '"quoted"'),
        (" a\n", STRING, " a\n"),
        ('{"a": 1}', STRING, '{"a": 1}'),
        ("True", {"type": "boolean"}, True),
        ("false\n", {"type": "boolean"}, False),
        ("5", {"type": "integer"}, 5),
        ('"5"', {"type": "integer"}, 5),
        ("5.0", {"type": "integer"}, 5),
        ("2.5", {"type": "number"}, 2.5),
        ("five", {"type": "integer"}, "five"),
        ("None", {"type": ["integer", "null"]}, None),
        ("null", {"type": ["string", "null"]}, None),
        ("nullable", {"type": ["string", "null"]}, "nullable"),
        ("5", {"type": ["string", "integer"]}, 5),
        ("5", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "5"),
        ("null", {"type": "string", "nullable": True}, None),
        ("{'a': True}", {"type": "object"}, {"a": True}),
        ("['a', (1,)]", {"type": "array"}, ["a", [1]]),
        ("[a, b]", {"type": "array"}, "[a, b]"),
        ("1", {"enum": ["1", "2"]}, "1"),
        ("1", {"enum": [1, 2]}, 1),
        ("2", {"enum": [1, "2"]}, "2"),
        ("on", {"const": "on"}, "on"),
        ("3", {"allOf": [{"type": ["string", "integer"]}, STRING]}, "3"),
        ("3", {"$ref": "#/$defs/x"}, 3),
        ("3", {"type": "any"}, 3),
    ],
)
def test_a_value_has_the_type_that_it_or_its_schema_says(
    text: str, schema: dict[str, Any] | None, value: Any
) -> None:
    """A number stays a number unless the tool declares a string. B26."""
    found = json.loads(as_json(text, schema))
    assert found == value
    assert type(found) is type(value)


@settings(deadline=None)
@given(json_values)
def test_json_stays_what_it_is(value: Any) -> None:
    """Any JSON value arrives as itself, and as its text where a string is declared. B26."""
    text = json.dumps(value)
    assert json.loads(as_json(text, None)) == value
    assert json.loads(as_json(text, STRING)) == text


@settings(deadline=None)
@given(st.text(), st.sampled_from([None, STRING, {"type": "integer"}, {"type": "object"}]))
def test_any_text_gives_some_json(text: str, schema: dict[str, Any] | None) -> None:
    """Whatever a model writes as a value, the arguments are JSON. B26."""
    json.loads(as_json(text, schema))


@settings(deadline=None)
@given(st.text(), st.text())
def test_strings_may_be_escaped_in_pieces(one: str, two: str) -> None:
    """A string that streams in pieces is escaped as it would be whole. B26."""
    assert escaped(one) + escaped(two) == escaped(one + two)
    assert json.loads(f'"{escaped(one)}"') == one


def test_only_strings_may_be_passed_on_before_their_end() -> None:
    """Where a value may be more than a string, a client gets it when it is complete. B26."""
    assert is_text(STRING)
    assert is_text({"enum": ["a", "b"]})
    assert not is_text(None)
    assert not is_text({"type": ["string", "null"]})
    assert kinds({"properties": {}}) == {"object"}
    assert parameter({"properties": {"a": STRING}}, "a") == STRING
    assert parameter({"additionalProperties": STRING}, "b") == STRING
    assert parameter({"properties": {"a": True}}, "a") is None


@settings(deadline=None)
@given(json_values, st.booleans(), st.data())
def test_the_end_of_json_is_found_in_any_pieces(value: Any, ascii: bool, data: Any) -> None:
    """Arguments end where their JSON does, however the text is cut. B23."""
    text = json.dumps(value, ensure_ascii=ascii, indent=data.draw(st.sampled_from([None, 1])))
    span, found, rest = JsonSpan(), "", f" \n{text}\n</end>"
    while not span.done:
        size = data.draw(st.integers(1, 8))
        part, behind = span.feed(rest[:size])
        found, rest = found + part, behind + rest[size:]
    assert (found, rest.lstrip()) == (text, "</end>")
    assert span.sound
    assert span.value == value


def test_broken_json_is_not_sound() -> None:
    """Arguments that are no JSON do not pass for such; a bare newline is mended. B24."""
    for text in ('{"a": b}', "{'a': 1}", '{"a": NaN}', "[" * 100_000 + "]" * 100_000, "[}"):
        span = JsonSpan()
        span.feed(text)
        span.finish()
        assert not span.sound, text[:10]
    span = JsonSpan()
    assert span.feed('{"a": "b\nc"}') == ('{"a": "b\\nc"}', "")
    assert span.sound
