"""Tools and the choice among them, to `core.conversation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bushel.core.conversation import Conversation, Tool, ToolFunction
from bushel.server.api.errors import InvalidField
from bushel.server.api.tools import checked_description, checked_name
from bushel.server.api.unread_fields import note_ignored

MOST_TOOLS = 1024
_CHOICES: dict[str, Literal["auto", "required"]] = {"auto": "auto", "any": "required"}


def offer(conversation: Conversation, tools: Any, choice: Any) -> None:
    """Notes what the model may call, and what it has to."""
    if tools is not None and (not isinstance(tools, list) or len(tools) > MOST_TOOLS):
        raise InvalidField("tools", f"must be a list of at most {MOST_TOOLS} tools")
    checked = [_tool(f"tools[{at}]", tool) for at, tool in enumerate(tools or ())]
    offered = [tool for tool in checked if tool is not None]
    choice = {"type": "auto"} if choice is None else choice
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in (*_CHOICES, "tool", "none"):
        raise InvalidField("tool_choice.type", "must be auto, any, tool or none")
    if kind == "tool":
        name = choice.get("name")
        if name not in [tool["function"]["name"] for tool in offered]:
            raise InvalidField("tool_choice.name", "must be the name of one of the tools")
        conversation["tool_choice"] = {"name": name}
    elif kind == "any" and not offered:
        raise InvalidField("tool_choice", "asks for a call, but there are no tools to call")
    if not offered or kind == "none":
        return
    conversation["tools"] = offered
    conversation.setdefault("tool_choice", _CHOICES.get(str(kind), "auto"))
    if choice.get("disable_parallel_tool_use") is True:
        conversation["parallel"] = False


def _tool(where: str, tool: Any) -> Tool | None:
    """None if it is of a kind that another server would have to run, or a model to know."""
    if not isinstance(tool, dict):
        raise InvalidField(where, "must be an object")
    kind, schema = tool.get("type"), tool.get("input_schema")
    if kind not in (None, "custom") and schema is None:
        note_ignored(f"tools: {str(kind)[:48]}", "this server has no such tool")
        return None
    name = checked_name(f"{where}.name", tool.get("name"))
    if not isinstance(schema, dict):
        raise InvalidField(f"{where}.input_schema", "must be a JSON schema of an object")
    made: Tool = {"type": "function", "function": _function(where, name, tool, schema)}
    if tool.get("defer_loading") is True:
        made["deferred"] = True
    return made


def _function(
    where: str, name: str, tool: Mapping[str, Any], schema: dict[str, Any]
) -> ToolFunction:
    function: ToolFunction = {"name": name}
    description = checked_description(f"{where}.description", tool.get("description"))
    if description is not None:
        function["description"] = description
    function["parameters"] = schema
    if tool.get("strict") is True:
        function["strict"] = True
    return function
