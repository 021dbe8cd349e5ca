"""Tools and the choice among them, to `core.conversation`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from bushel.core.conversation import Conversation, Tool, ToolFunction
from bushel.server.anthropic.blocks_to_parts import wrong
from bushel.server.openai.params import note_ignored

MOST_TOOLS = 1024
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_CHOICES: dict[str, Literal["auto", "required"]] = {"auto": "auto", "any": "required"}


def offer(said: Conversation, tools: Any, choice: Any) -> None:
    """Notes in `said` what the model may call, and what it has to."""
    if tools is not None and (not isinstance(tools, list) or len(tools) > MOST_TOOLS):
        raise wrong("tools", f"must be a list of at most {MOST_TOOLS} tools")
    made = [_tool(f"tools[{at}]", tool) for at, tool in enumerate(tools or ())]
    found = [tool for tool in made if tool is not None]
    choice = {"type": "auto"} if choice is None else choice
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in (*_CHOICES, "tool", "none"):
        raise wrong("tool_choice.type", "must be auto, any, tool or none")
    if kind == "tool":
        name = choice.get("name")
        if name not in [tool["function"]["name"] for tool in found]:
            raise wrong("tool_choice.name", "must be the name of one of the tools")
        said["tool_choice"] = {"name": name}
    elif kind == "any" and not found:
        raise wrong("tool_choice", "asks for a call, but there are no tools to call")
    if not found or kind == "none":
        return
    said["tools"] = found
    said.setdefault("tool_choice", _CHOICES.get(str(kind), "auto"))
    if choice.get("disable_parallel_tool_use") is True:
        said["parallel"] = False


def _tool(where: str, tool: Any) -> Tool | None:
    """None if it is of a kind that another server would have to run, or a model to know."""
    if not isinstance(tool, dict):
        raise wrong(where, "must be an object")
    kind, schema = tool.get("type"), tool.get("input_schema")
    if kind not in (None, "custom") and schema is None:
        note_ignored(f"tools: {str(kind)[:48]}", "this server has no such tool")
        return None
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise wrong(f"{where}.name", "must be 1 to 128 letters, digits, or any of _ - . : /")
    if not isinstance(schema, dict):
        raise wrong(f"{where}.input_schema", "must be a JSON schema of an object")
    made: Tool = {"type": "function", "function": _function(where, name, tool, schema)}
    if tool.get("defer_loading") is True:
        made["deferred"] = True
    return made


def _function(
    where: str, name: str, tool: Mapping[str, Any], schema: dict[str, Any]
) -> ToolFunction:
    function: ToolFunction = {"name": name}
    if (described := tool.get("description")) is not None:
        if not isinstance(described, str):
            raise wrong(f"{where}.description", "must be a string")
        function["description"] = described
    function["parameters"] = schema
    if tool.get("strict") is True:
        function["strict"] = True
    return function
