"""`response_format` as OpenAI's clients and scripts write it, and the form that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bushel.core import FieldError
from bushel.core.conversation import Shape
from bushel.core.spelling import did_you_mean

_KINDS = ("text", "json_object", "json_schema")
_KEYS = ("type", "json_schema")
_SCHEMA_KEYS = ("name", "description", "schema", "strict")


def shape_for(kind: str, schema: dict[str, Any] | None) -> Shape | None:
    """A schema is kept whether it says `strict` or not; without one, any object will do."""
    if kind == "text":
        return None
    return {"json_object": True} if schema is None else {"json_schema": schema}


def checked_format(value: Any) -> Shape | None:
    """A script's. Of a FieldError, the place is that below `response_format`."""
    if not isinstance(value, Mapping):
        raise FieldError("", "must be an object with a type")
    _require_keys("", value, _KEYS)
    kind = value.get("type")
    if kind not in _KINDS:
        raise FieldError(".type", f"must be one of {', '.join(_KINDS)}")
    if kind != "json_schema":
        return shape_for(kind, None)
    inner = value.get("json_schema")
    if not isinstance(inner, Mapping):
        raise FieldError(".json_schema", "must be an object with a schema")
    _require_keys(".json_schema", inner, _SCHEMA_KEYS)
    schema = inner.get("schema")
    if schema is not None and not isinstance(schema, dict):
        raise FieldError(".json_schema.schema", "must be a JSON schema")
    return shape_for(kind, schema)


def _require_keys(where: str, value: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """A schema that stands in the wrong place would be no schema at all."""
    for key in value:
        if key not in known:
            hint = did_you_mean(key, known).removesuffix(".")
            raise FieldError(where, f"has a key {str(key)[:60]!r}, which is not known{hint}")
