"""Schemas of tools for templates that need every property to say what it is.

JSON schema lets almost everything out. Most templates print what is there; some print signatures
of it, and raise or run in circles where a type or a description is missing, or a type is several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
_CHOICES = ("anyOf", "oneOf", "allOf")


def complete(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The same tool, with a description and parameters, all of which have one type."""
    function = {"description": "", "parameters": {}, **tool["function"]}
    return {**tool, "function": {**function, "parameters": _complete(function["parameters"])}}


def _complete(schema: Any) -> dict[str, Any]:
    given = dict(schema) if isinstance(schema, Mapping) else {}
    made = {"description": "", **given, "type": _type(given)}
    if made["type"] == "object":
        made.setdefault("additionalProperties", {})
        properties = made.get("properties")
        named = properties.items() if isinstance(properties, Mapping) else ()
        made["properties"] = {name: _complete(inner) for name, inner in named}
    if made["type"] == "array":
        made["items"] = _complete(made.get("items"))
    return made


def _type(schema: Mapping[str, Any]) -> str:
    declared = schema.get("type")
    declared = [declared] if isinstance(declared, str) else declared
    kinds = declared if isinstance(declared, list) else []
    for choice in _CHOICES:
        options = schema.get(choice)
        for option in options if isinstance(options, list) else ():
            kinds = [*kinds, _type(option)] if isinstance(option, Mapping) else kinds
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    kinds = [*kinds, *(_KINDS.get(type(value)) for value in values if isinstance(values, list))]
    kinds += ["object"] * ("properties" in schema) + ["array"] * ("items" in schema)
    # One that may also be null is of the other type.
    return next((kind for kind in kinds if isinstance(kind, str) and kind != "null"), "string")
