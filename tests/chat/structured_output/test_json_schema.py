"""Which JSON schemas a reply can be held to, and what is said of the others."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from bushel.chat.reply_constraint import constraint_of
from bushel.chat.structured_output.json_schema import MOST_DEPTH, checked
from bushel.core import ReplyFormat, RequestError
from bushel.models import Preparer
from bushel.text.grammar_compiler import compiled, prove
from tests.chat.structured_output.random_replies import host, replies, takes

NODE: dict[str, Any] = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 0, "maximum": 9},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["n", "next"],
            "additionalProperties": False,
        }
    },
}
GOOD: dict[str, Any] = {
    "recursive": NODE,
    "draft-07": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "x",
        "title": "T",
        "default": {},
        "type": "object",
        "definitions": {"a": {"enum": [1]}},
        "properties": {"x": {"$ref": "#/definitions/a"}},
        "required": ["x"],
    },
    "draft-07 tuple": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [{"const": 1}, {"const": "b"}],
        "additionalItems": False,
        "minItems": 2,
    },
    "draft-04 bound": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "integer",
        "minimum": 3,
        "exclusiveMinimum": True,
        "maximum": 4,
    },
    "top-level choice": {"anyOf": [{"const": 1}, {"const": "b"}]},
    "tagged union": {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": it}, it: {"type": "boolean"}},
                "required": ["kind", it],
            }
            for it in ("cat", "dog")
        ],
        "discriminator": {"propertyName": "kind"},
    },
    "unknown words": {"type": "boolean", "x-order": 1, "nullable": False, "format": "int32"},
    "map": {
        "type": "object",
        "propertyNames": {"type": "string"},
        "additionalProperties": {"type": "boolean"},
        "maxProperties": 1,
    },
    "merged": {
        "allOf": [
            {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"const": 2}}, "required": ["b"]},
        ]
    },
    "beside a choice": {
        "type": "object",
        "properties": {"a": {"const": 1}},
        "required": ["a"],
        "anyOf": [{"properties": {"b": {"const": 2}}, "required": ["b"]}, {"required": ["a"]}],
        "maxProperties": 2,
    },
    "true": {"type": "object", "properties": {"a": True}},
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Preparer:
    return host(Path(tmp_path_factory.mktemp("plain")))


def grammar(plain: Preparer, schema: Any) -> str:
    constraint = constraint_of(
        ReplyFormat(), {"shape": {"json_schema": schema}}, opened=False, host=plain
    )
    assert constraint is not None
    return constraint.grammar or ""


@pytest.mark.parametrize("name", GOOD)
def test_replies_to_a_schema_are_valid_by_it(plain: Preparer, name: str) -> None:
    hints = ["null", '"', "}", "]", "true"]
    for text in replies(plain, grammar(plain, GOOD[name]), ReplyFormat(), 5, hints):
        jsonschema_rs.validate(GOOD[name], json.loads(text))


def test_objects_have_the_properties_they_declare_and_no_others(plain: Preparer) -> None:
    """An object that may have others says so."""
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}}
    assert takes(plain, grammar(plain, schema), '{"a": true}')
    assert not takes(plain, grammar(plain, schema), '{"b": true}')
    assert takes(plain, grammar(plain, {**schema, "additionalProperties": True}), '{"b": true}')


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"not": {}}}}, "schema.properties.a.not"),
        ({"items": {"uniqueItems": True}}, "schema.items.uniqueItems"),
        ({"anyOf": [{"if": {}, "then": {}}]}, "schema.anyOf[0].if"),
        ({"$defs": {"a": {"contains": {}}}}, "schema.$defs.a.contains"),
        ({"$ref": "https://example.org/schema"}, "schema.$ref"),
        ({"properties": []}, "schema.properties"),
        ({"properties": {"a": 5}}, "schema.properties.a"),
        ({"pattern": "a" * 3000}, "schema.pattern"),
        ({"type": "integer", "multipleOf": 999983}, "schema.multipleOf"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_its_place(schema: Any, place: str) -> None:
    with pytest.raises(RequestError) as refused:
        checked(schema, "response_format", "schema")
    assert str(refused.value).startswith(f"{place} ")
    assert refused.value.param == "response_format"
    assert refused.value.code == "invalid_grammar"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "strng"}, "strng"),
        ({"$ref": "#/$defs/none"}, "none"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "greater than maximum"),
        ({"oneOf": [{"type": "string"}, {"minLength": 2}]}, "oneOf"),
    ],
)
def test_what_the_library_refuses_is_told_in_its_words(
    plain: Preparer, schema: Any, words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        compiled(plain.profile.grammar_tokens, grammar(plain, schema))


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def tree(levels: int, width: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {f"p{at}": schema for at in range(width)}}
    return schema


HOSTILE: dict[str, Any] = {
    "deep": {"json_schema": nested(10_000)},
    "just too deep": {"json_schema": nested(MOST_DEPTH + 1)},
    "wide": {"json_schema": tree(1, 3000)},
    "a tree": {"json_schema": tree(8, 4)},
    "a long list": {"json_schema": {"enum": list(range(60_000))}},
    "a long text": {"json_schema": {"const": "x" * 300_000}},
    "products": {
        "json_schema": {
            "allOf": [
                {"anyOf": [{"properties": {f"x{i}_{k}": {"type": "integer"}}} for k in range(4)]}
                for i in range(10)
            ]
        }
    },
    "itself": {"json_schema": {"allOf": [{"$ref": "#"}, {"type": "integer"}]}},
    "brackets": {"grammar": "start: " + "(" * 3000 + '"a"' + ")" * 3000},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused_before_a_reply_begins(plain: Preparer, name: str) -> None:
    def begin() -> None:
        constraint = constraint_of(
            ReplyFormat(), {"shape": HOSTILE[name]}, opened=False, host=plain
        )
        assert constraint is not None
        prove(plain.profile.grammar_tokens, constraint.grammar or "")

    with pytest.raises(RequestError) as refused:
        begin()
    assert refused.value.code == "invalid_grammar"


def test_any_value_for_a_schema_gives_a_schema_or_a_refusal() -> None:
    """No other error, whatever stands where."""
    rng = random.Random(3)
    words = ("type", "items", "properties", "anyOf", "$ref", "enum", "not", "pattern", "required")

    def value(depth: int) -> Any:
        plain: list[Any] = [None, True, 5, 2.5, "string", "#/x", [], {}]
        if not depth or rng.random() < 0.3:
            return rng.choice(plain)
        if rng.random() < 0.3:
            return [value(depth - 1) for _ in range(rng.randint(0, 3))]
        return {rng.choice(words): value(depth - 1) for _ in range(rng.randint(0, 3))}

    refused = 0
    for _ in range(500):
        try:
            assert isinstance(checked(value(4), "tools", "it", exact=rng.random() < 0.5), dict)
        except RequestError:
            refused += 1
    assert 0 < refused < 500
