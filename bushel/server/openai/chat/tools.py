"""Fields of a chat request that say what the model may call."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from bushel.chat.tool_fields import MOST_TOOLS, checked_choice
from bushel.core.conversation import Tool, ToolFunction
from bushel.server.api.custom_tools import FORMAT, NESTED_FORMAT, custom_tool
from bushel.server.api.descriptions import described, tagged
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import object_schema
from bushel.server.api.tools import (
    DESCRIPTION,
    NAME_SCHEMA,
    PARAMETERS,
    checked_description,
    checked_name,
)
from bushel.server.api.unread_fields import note_ignored


def _checked_schema(where: str, schema: Any) -> dict[str, Any]:
    """Of a tool's arguments; absent, it takes none."""
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise InvalidField(where, "must be a JSON schema of an object")
    return schema


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MOST_TOOLS:
        raise InvalidField("", f"must be a list of at most {MOST_TOOLS} tools")
    return value


def _tools(value: Any) -> list[Tool]:
    tools = [_tool(f"[{at}]", tool) for at, tool in enumerate(_listed(value))]
    return [tool for tool in tools if tool is not None]


def _functions(value: Any) -> list[Tool]:
    return [_function(f"[{at}]", function) for at, function in enumerate(_listed(value))]


def _tool(where: str, tool: Any) -> Tool | None:
    """None if it is of a kind that only another server could run."""
    if not isinstance(tool, dict) or not isinstance(tool.get("type", "function"), str):
        raise InvalidField(where, "must be an object with a type")
    kind = tool.get("type", "function")
    if kind == "function":
        return _function(f"{where}.function", tool.get("function"))
    if kind != "custom":
        note_ignored(f"tools: {kind}", "such tools are not run here")
        return None
    if not isinstance(tool.get("custom"), dict):
        raise InvalidField(f"{where}.custom", "must be an object")
    return custom_tool(f"{where}.custom", tool["custom"])


def _function(where: str, function: Any) -> Tool:
    if not isinstance(function, dict):
        raise InvalidField(where, "must be an object")
    checked: ToolFunction = {"name": checked_name(f"{where}.name", function.get("name"))}
    description = checked_description(f"{where}.description", function.get("description"))
    if description is not None:
        checked["description"] = description
    checked["parameters"] = _checked_schema(f"{where}.parameters", function.get("parameters"))
    if function.get("strict"):
        checked["strict"] = True
    return {"type": "function", "function": checked}


_FUNCTION = object_schema(
    {"name": NAME_SCHEMA},
    description=described(DESCRIPTION, {"type": ["string", "null"]}),
    parameters=described(f"{PARAMETERS} (default: it takes none).", {"type": ["object", "null"]}),
)
_CUSTOM = object_schema(
    {"name": NAME_SCHEMA},
    description=described(DESCRIPTION, {"type": ["string", "null"]}),
    format=described(FORMAT, NESTED_FORMAT),
)
_TOOL_SCHEMA = {
    "anyOf": [
        object_schema(
            {"type": tagged("function"), "function": described("What can be called.", _FUNCTION)}
        ),
        object_schema(
            {"type": tagged("custom"), "custom": described("What can be called.", _CUSTOM)}
        ),
    ]
}
Tools = Annotated[
    list[dict[str, Any]],
    PlainValidator(_tools),
    WithJsonSchema({"type": "array", "items": _TOOL_SCHEMA, "maxItems": MOST_TOOLS}),
]
# The older form, which knows functions only and lets a reply make one call.
Functions = Annotated[
    list[dict[str, Any]],
    PlainValidator(_functions),
    WithJsonSchema({"type": "array", "items": _FUNCTION, "maxItems": MOST_TOOLS}),
]


def _choice_schema(kind: str) -> dict[str, Any]:
    named = described("What must be called.", object_schema({"name": NAME_SCHEMA}))
    return object_schema({"type": tagged(kind), kind: named})


_CHOICE_SCHEMA = {
    "anyOf": [
        {"enum": ["none", "auto", "required", "any"]},
        _choice_schema("function"),
        _choice_schema("custom"),
    ]
}


def _function_choice(value: Any) -> str | dict[str, Any]:
    if value in ("none", "auto"):
        return str(value)
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return {"name": value["name"]}
    raise InvalidField("", 'must be "none", "auto" or an object with the name of a function')


FunctionChoice = Annotated[
    Any,
    PlainValidator(_function_choice),
    WithJsonSchema({"anyOf": [{"enum": ["none", "auto"]}, object_schema({"name": NAME_SCHEMA})]}),
]
ToolChoice = Annotated[Any, PlainValidator(checked_choice), WithJsonSchema(_CHOICE_SCHEMA)]
