"""Fields of a chat request that say what the model may call."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from bushel.server.api.errors import InvalidField
from bushel.server.api.tools import NAME_SCHEMA, checked_description, checked_name

MOST_TOOLS = 1024


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


_TOOL_SCHEMA = {
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {
                "name": NAME_SCHEMA,
                "description": {"type": ["string", "null"]},
                "parameters": {"type": ["object", "null"]},
            },
            "required": ["name"],
        },
    },
    "required": ["type", "function"],
}
Tools = Annotated[
    list[dict[str, Any]],
    PlainValidator(_tools),
    WithJsonSchema({"type": "array", "items": _TOOL_SCHEMA, "maxItems": MOST_TOOLS}),
]


def _choice(value: Any) -> str | dict[str, Any]:
    """ "none", "auto", "required", {"name"}, or {"allowed", "required"}."""
    if value in ("none", "auto", "required"):
        return str(value)
    if isinstance(value, dict) and value.get("type") == "function":
        function = value.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        return {"name": checked_name(".function.name", name)}
    if isinstance(value, dict) and value.get("type") == "allowed_tools":
        return _allowed(value.get("allowed_tools", value))
    raise InvalidField("", 'must be "none", "auto", "required" or an object that names a function')


def _allowed(value: Any) -> dict[str, Any]:
    tools = value.get("tools") if isinstance(value, dict) else None
    if not isinstance(tools, list) or len(tools) > MOST_TOOLS:
        raise InvalidField(".allowed_tools.tools", f"must be a list of at most {MOST_TOOLS} tools")
    names = [_named(f".allowed_tools.tools[{at}]", tool) for at, tool in enumerate(tools)]
    return {"allowed": names, "required": value.get("mode") == "required"}


def _named(where: str, tool: Any) -> str:
    inner = tool.get("function") if isinstance(tool, dict) else None
    named = inner if isinstance(inner, dict) else tool
    return checked_name(f"{where}.name", named.get("name") if isinstance(named, dict) else None)


_CHOICE_SCHEMA = {
    "anyOf": [
        {"enum": ["none", "auto", "required"]},
        {
            "type": "object",
            "properties": {
                "type": {"const": "function"},
                "function": {
                    "type": "object",
                    "properties": {"name": NAME_SCHEMA},
                    "required": ["name"],
                },
            },
            "required": ["type", "function"],
        },
    ]
}
ToolChoice = Annotated[Any, PlainValidator(_choice), WithJsonSchema(_CHOICE_SCHEMA)]


def chosen(choice: Any, tools: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Any]:
    """What a checked `tool_choice` leaves of the tools, and what it demands."""
    if choice == "none":
        return [], None
    if isinstance(choice, dict):
        names = {tool["function"]["name"] for tool in tools}
        wanted = choice.get("allowed", [choice.get("name")])
        if unknown := [name for name in wanted if name not in names]:
            rule = f"names {str(unknown[0])[:80]!r}, which is not among the tools"
            raise InvalidField("tool_choice", rule, code=None)
        if "allowed" in choice:
            allowed = frozenset(wanted)
            tools = [tool for tool in tools if tool["function"]["name"] in allowed]
            choice = "required" if choice["required"] else "auto"
    if choice == "required" and not tools:
        raise InvalidField("tool_choice", "is required, but there are no tools", code=None)
    return tools, choice
