"""Fields of a chat request that say what the model may call."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from bushel.chat.tool_fields import MOST_TOOLS, checked_choice
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


def _checked_schema(where: str, schema: Any) -> dict[str, Any]:
    """Of a tool's arguments; absent, it takes none."""
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise InvalidField(where, "must be a JSON schema of an object")
    return schema


def _tools(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or len(value) > MOST_TOOLS:
        raise InvalidField("", f"must be a list of at most {MOST_TOOLS} tools")
    tools = [_tool(f"[{at}]", tool) for at, tool in enumerate(value)]
    return [tool for tool in tools if tool is not None]


def _tool(where: str, tool: Any) -> dict[str, Any] | None:
    """None if it is of a kind that only another server could run."""
    if not isinstance(tool, dict) or not isinstance(tool.get("type", "function"), str):
        raise InvalidField(where, "must be an object with a type")
    if tool.get("type", "function") != "function":
        return None
    function = tool.get("function")
    if not isinstance(function, dict):
        raise InvalidField(f"{where}.function", "must be an object")
    here = f"{where}.function"
    checked: dict[str, Any] = {"name": checked_name(f"{here}.name", function.get("name"))}
    description = checked_description(f"{here}.description", function.get("description"))
    if description is not None:
        checked["description"] = description
    checked["parameters"] = _checked_schema(f"{here}.parameters", function.get("parameters"))
    if function.get("strict"):
        checked["strict"] = True
    return {"type": "function", "function": checked}


_FUNCTION = object_schema(
    {"name": NAME_SCHEMA},
    description=described(DESCRIPTION, {"type": ["string", "null"]}),
    parameters=described(f"{PARAMETERS} (default: it takes none).", {"type": ["object", "null"]}),
)
_TOOL_SCHEMA = object_schema(
    {"type": tagged("function"), "function": described("What can be called.", _FUNCTION)}
)
Tools = Annotated[
    list[dict[str, Any]],
    PlainValidator(_tools),
    WithJsonSchema({"type": "array", "items": _TOOL_SCHEMA, "maxItems": MOST_TOOLS}),
]


_CHOICE_SCHEMA = {
    "anyOf": [
        {"enum": ["none", "auto", "required", "any"]},
        object_schema(
            {
                "type": tagged("function"),
                "function": described("What must be called.", object_schema({"name": NAME_SCHEMA})),
            }
        ),
    ]
}
ToolChoice = Annotated[Any, PlainValidator(checked_choice), WithJsonSchema(_CHOICE_SCHEMA)]
