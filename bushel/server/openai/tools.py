"""Fields of a chat request that say what the model may call, and what its answer looks like."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from bushel.core.conversation import Shape
from bushel.server.openai.messages import wrong

MOST_TOOLS = 1024
# OpenAI's own allows 64; tools that come through gateways carry longer names.
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


def checked_name(where: str, name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise wrong(where, "must be 1 to 128 letters, digits, or any of _ - . : /")
    return name


def checked_schema(where: str, schema: Any) -> dict[str, Any]:
    """Of a tool's arguments; absent, it takes none."""
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise wrong(where, "must be a JSON schema of an object")
    return schema


def _tools(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or len(value) > MOST_TOOLS:
        raise wrong("", f"must be a list of at most {MOST_TOOLS} tools")
    tools = [_tool(f"[{at}]", it) for at, it in enumerate(value)]
    return [it for it in tools if it is not None]


def _tool(where: str, tool: Any) -> dict[str, Any] | None:
    """None if it is of a kind that only another server could run."""
    if not isinstance(tool, dict) or not isinstance(tool.get("type", "function"), str):
        raise wrong(where, "must be an object with a type")
    if tool.get("type", "function") != "function":
        return None
    function = tool.get("function")
    if not isinstance(function, dict):
        raise wrong(f"{where}.function", "must be an object")
    here = f"{where}.function"
    found: dict[str, Any] = {"name": checked_name(f"{here}.name", function.get("name"))}
    if (described := function.get("description")) is not None:
        if not isinstance(described, str):
            raise wrong(f"{here}.description", "must be a string")
        found["description"] = described
    found["parameters"] = checked_schema(f"{here}.parameters", function.get("parameters"))
    if function.get("strict"):
        found["strict"] = True
    return {"type": "function", "function": found}


_NAME_SCHEMA = {"type": "string", "pattern": f"^{_NAME.pattern}$"}
_TOOL_SCHEMA = {
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {
                "name": _NAME_SCHEMA,
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
    raise wrong("", 'must be "none", "auto", "required" or an object that names a function')


def _allowed(value: Any) -> dict[str, Any]:
    tools = value.get("tools") if isinstance(value, dict) else None
    if not isinstance(tools, list) or len(tools) > MOST_TOOLS:
        raise wrong(".allowed_tools.tools", f"must be a list of at most {MOST_TOOLS} tools")
    names = [_named(f".allowed_tools.tools[{at}]", it) for at, it in enumerate(tools)]
    return {"allowed": names, "required": value.get("mode") == "required"}


def _named(where: str, tool: Any) -> str:
    inner = tool.get("function") if isinstance(tool, dict) else None
    found = inner if isinstance(inner, dict) else tool
    return checked_name(f"{where}.name", found.get("name") if isinstance(found, dict) else None)


_CHOICE_SCHEMA = {
    "anyOf": [
        {"enum": ["none", "auto", "required"]},
        {
            "type": "object",
            "properties": {
                "type": {"const": "function"},
                "function": {
                    "type": "object",
                    "properties": {"name": _NAME_SCHEMA},
                    "required": ["name"],
                },
            },
            "required": ["type", "function"],
        },
    ]
}
ToolChoice = Annotated[Any, PlainValidator(_choice), WithJsonSchema(_CHOICE_SCHEMA)]


class JsonSchemaFormat(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """`json_schema` is obeyed whether it says `strict` or not."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": {"type": {"enum": ["text", "json_object"]}}},
                {
                    "properties": {"json_schema": {"type": "object"}},
                    "required": ["json_schema"],
                },
            ]
        }
    )

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _complete(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise wrong(".json_schema", "is missing")
        return self

    @property
    def shape(self) -> Shape | None:
        if self.type == "text":
            return None
        if self.json_schema is None or self.json_schema.schema_ is None:
            return {"json_object": True}
        return {"json_schema": self.json_schema.schema_}


class StructuredOutputs(BaseModel):
    """As vLLM's clients ask for it."""

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: Annotated[list[str], Field(max_length=1024, fail_fast=True)] | None = None
    grammar: str | None = None
