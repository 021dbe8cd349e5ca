"""Every field of every API says what it does, where the OpenAPI document shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel, Field

from bushel.server import admin
from tools.reference import openapi_document

Schema = Mapping[str, Any]
_SAME_OBJECT = ("allOf", "anyOf", "oneOf")
_INSIDE = ("items", "additionalProperties")


def fields(
    where: str, schema: Schema, described: frozenset[str] = frozenset()
) -> Iterator[tuple[str, bool]]:
    """(place, whether it is described) of every field in a schema, at any depth.

    described: fields that the schema around this one tells of; alternatives of one object may
    repeat them with other bounds.
    """
    own: Schema = schema.get("properties", {})
    for name, field in own.items():
        told = bool(field.get("description", "").strip())
        yield f"{where}.{name}", told or name in described
        yield from fields(f"{where}.{name}", field)
        described |= {name} if told else frozenset()
    for key in _SAME_OBJECT:
        for alternative in schema.get(key, ()):
            yield from fields(where, alternative, described)
    for key in _INSIDE:
        if isinstance(schema.get(key), Mapping):
            yield from fields(f"{where}[]", schema[key])


def all_fields(document: Schema) -> Iterator[tuple[str, bool]]:
    for name, schema in document["components"]["schemas"].items():
        yield from fields(name, schema)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method.upper()} {path}"
            for one in operation.get("parameters", ()):
                yield f"{where}: {one['name']}", bool(one.get("description", "").strip())
            bodies = (operation.get("requestBody", {}), *operation["responses"].values())
            for body in bodies:
                for content in body.get("content", {}).values():
                    yield from fields(where, content.get("schema", {}))


def undescribed(document: Schema) -> list[str]:
    return sorted({place for place, told in all_fields(document) if not told})


def test_every_field_of_every_api_is_described() -> None:
    assert undescribed(openapi_document()) == []


def test_fields_of_every_kind_are_looked_at() -> None:
    places = {place for place, _ in all_fields(openapi_document())}
    assert len(places) > 450
    assert places >= {
        "ChatRequest.temperature",
        "ChatRequest.messages[].content[].image_url.url",
        "StreamOptions.include_usage",
        "MessagesRequest.tools[].input_schema",
        "ResponsesRequest.input[].call_id",
        "ErrorDetail.message",
        "GET /v1/cache: model",
    }


def test_control_a_field_without_a_description_is_reported_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Inner(BaseModel):
        colour: str

    class Version(BaseModel):
        version: str = Field(description="Bushel's version.")
        blank: str = Field(" ", description=" ")
        inner: list[Inner] = Field([], description="What it is made of.")

    monkeypatch.setattr(admin, "Version", Version)
    assert undescribed(openapi_document()) == ["Inner.colour", "Version.blank"]


def test_control_alternatives_repeat_only_what_is_told_around_them() -> None:
    told = {"type": "string", "description": "Either this or that."}
    either = {"properties": {"one": {"type": "null"}, "two": {"type": "null"}}}
    places = dict(fields("Body", {"properties": {"one": told}, "anyOf": [either]}))
    assert places == {"Body.one": True, "Body.two": False}
