"""Tools that a request offers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from bushel.core.conversation import Tool, ToolFunction
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

MOST_TOOLS = 1024


def _tools(value: Any) -> list[Tool]:
    if not isinstance(value, list) or len(value) > MOST_TOOLS:
        raise InvalidField("", f"must be a list of at most {MOST_TOOLS} tools")
    return [_tool(f"[{at}]", tool) for at, tool in enumerate(value)]


def _tool(where: str, tool: Any) -> Tool:
    if not isinstance(tool, dict) or tool.get("type", "function") != "function":
        raise InvalidField(where, "must be an object of type function")
    function, here = tool.get("function"), f"{where}.function"
    if not isinstance(function, dict):
        raise InvalidField(here, "must be an object")
    made: ToolFunction = {"name": checked_name(f"{here}.name", function.get("name"))}
    description = checked_description(f"{here}.description", function.get("description"))
    if description is not None:
        made["description"] = description
    parameters = function.get("parameters")
    if not isinstance(parameters, dict | None):
        raise InvalidField(f"{here}.parameters", "must be a JSON schema of an object")
    made["parameters"] = parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": made}


_FUNCTION = object_schema(
    {"name": NAME_SCHEMA},
    description=described(DESCRIPTION, {"type": ["string", "null"]}),
    parameters=described(f"{PARAMETERS} (default: it takes none).", {"type": ["object", "null"]}),
)
_TOOL = object_schema(
    {"function": described("What can be called.", _FUNCTION)}, type=tagged("function")
)
# pydantic takes no TypedDict of Python 3.11's own.
Tools = Annotated[
    list[dict[str, Any]],
    PlainValidator(_tools),
    WithJsonSchema({"type": "array", "items": _TOOL, "maxItems": MOST_TOOLS}),
]
