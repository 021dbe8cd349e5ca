"""`tools` and `tool_choice` as OpenAI's clients and scripts write them, and what both offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bushel.core import FieldError, RequestError, public_message

MOST_TOOLS = 1024
_WORDS = ("none", "auto", "required")
_KINDS = ("function", "custom")


def checked_choice(value: Any) -> str | dict[str, Any]:
    """ "none", "auto", "required", {"name"}, or {"allowed", "required"}. Of a FieldError, the place
    is that below `tool_choice`.
    """
    if value == "any":  # as Mistral's and Anthropic's clients write it
        return "required"
    if isinstance(value, str) and value in _WORDS:
        return value
    if isinstance(value, Mapping) and value.get("type") in _KINDS:
        return {"name": _name(f".{value['type']}.name", value.get(value["type"]))}
    if isinstance(value, Mapping) and value.get("type") == "allowed_tools":
        return _allowed(value.get("allowed_tools", value))
    raise FieldError("", 'must be "none", "auto", "required" or an object that names a tool')


def _allowed(value: Any) -> dict[str, Any]:
    tools = value.get("tools") if isinstance(value, Mapping) else None
    if not isinstance(tools, list) or len(tools) > MOST_TOOLS:
        raise FieldError(".allowed_tools.tools", f"must be a list of at most {MOST_TOOLS} tools")
    names = [_named(f".allowed_tools.tools[{at}].name", tool) for at, tool in enumerate(tools)]
    return {"allowed": names, "required": value.get("mode") == "required"}


def _named(where: str, tool: Any) -> str:
    inner = tool.get(tool.get("type", "function")) if isinstance(tool, Mapping) else None
    return _name(where, inner if isinstance(inner, Mapping) else tool)


def _name(where: str, function: Any) -> str:
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise FieldError(where, "must be the name of a tool")
    return name


def chosen(choice: Any, tools: Sequence[Any]) -> tuple[list[Any], Any]:
    """What a checked `tool_choice` leaves of the tools, and what it demands."""
    left = list(tools)
    if choice == "none":
        return [], None
    if isinstance(choice, dict):
        names = {tool["function"]["name"] for tool in left}
        wanted = choice.get("allowed", [choice.get("name")])
        if unknown := [name for name in wanted if name not in names]:
            rule = f"names {str(unknown[0])[:80]!r}, which is not among the tools"
            raise FieldError("tool_choice", rule)
        if "allowed" in choice:
            allowed = frozenset(wanted)
            left = [tool for tool in left if tool["function"]["name"] in allowed]
            choice = "required" if choice["required"] else "auto"
    if choice == "required" and not left:
        raise FieldError("tool_choice", "is required, but there are no tools")
    return left, choice


def offered_by(tools: Sequence[Any]) -> dict[str, Any]:
    """Each tool's schema of arguments, by its name."""
    functions = [tool["function"] for tool in tools]
    return {function["name"]: function.get("parameters") or {} for function in functions}


def checked_tools(given: Any) -> list[dict[str, Any]]:
    """In one form: some callers leave out that a tool is a function, some give the function."""
    if given is None:
        return []
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise RequestError("tools must be a list.", param="tools")
    return list(_tools(given))


def _tools(given: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for at, tool in enumerate(given):
        described = _described(at, tool) if callable(tool) else tool
        function = described.get("function", described) if isinstance(described, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise RequestError(
                f"tools[{at}] must be an object with a function that has a name.", param="tools"
            )
        if not isinstance(function.get("parameters"), Mapping | None):
            raise FieldError(f"tools[{at}].function.parameters", "must be a JSON schema")
        whole = function is not described
        yield dict(described) if whole else {"type": "function", "function": dict(function)}


def _described(at: int, function: Any) -> Any:
    from transformers.utils import get_json_schema

    try:
        return get_json_schema(function)
    except Exception as error:  # of a docstring that does not say what its arguments are
        raise RequestError(f"tools[{at}]: {public_message(error)}", param="tools") from None
