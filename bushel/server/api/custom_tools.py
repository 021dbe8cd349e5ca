"""Custom tools, whose input is text: to the model, functions of one string."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bushel.core.conversation import InputFormat, Tool, ToolFunction
from bushel.server.api.descriptions import described, tagged
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import Schema, object_schema
from bushel.server.api.tools import checked_description, checked_name

_SYNTAXES = ("lark", "regex")
_GRAMMAR = object_schema(
    {
        "syntax": described("The notation of the grammar.", {"enum": list(_SYNTAXES)}),
        "definition": described(
            "The grammar, which every input matches as a whole; in Lark's notation, without "
            "recursion.",
            {"type": "string", "minLength": 1},
        ),
    }
)
_TEXT_FORMAT = object_schema({"type": tagged("text")})
# Chat completions have the grammar in an object of its own; both forms are taken everywhere.
NESTED_FORMAT: Schema = {
    "anyOf": [
        _TEXT_FORMAT,
        object_schema(
            {"type": tagged("grammar"), "grammar": described("What holds the input.", _GRAMMAR)}
        ),
        {"type": "null"},
    ]
}
FLAT_FORMAT: Schema = {
    "anyOf": [
        _TEXT_FORMAT,
        object_schema({"type": tagged("grammar"), **_GRAMMAR["properties"]}),
        {"type": "null"},
    ]
}
FORMAT = "What the input looks like: any text, or what a grammar allows (default: any text)."


def custom_tool(where: str, tool: Mapping[str, Any]) -> Tool:
    """tool: an object with a name, a description and a format."""
    form = _format(f"{where}.format", tool.get("format"))
    function: ToolFunction = {"name": checked_name(f"{where}.name", tool.get("name"))}
    description = checked_description(f"{where}.description", tool.get("description"))
    if description:
        function["description"] = description
    function["parameters"] = _one_text(form)
    return {"type": "function", "function": function, "input": form}


def _format(where: str, given: Any) -> InputFormat:
    if given is None:
        return {"type": "text"}
    kind = given.get("type", "text") if isinstance(given, dict) else None
    if kind == "text":
        return {"type": "text"}
    if kind != "grammar":
        raise InvalidField(where, "must be an object whose type is text or grammar")
    grammar = given.get("grammar", given)
    grammar = grammar if isinstance(grammar, dict) else {}
    syntax, definition = grammar.get("syntax"), grammar.get("definition")
    if syntax not in _SYNTAXES:
        raise InvalidField(f"{where}.syntax", f"must be one of {', '.join(_SYNTAXES)}")
    if not isinstance(definition, str) or not definition.strip():
        raise InvalidField(f"{where}.definition", "must be a grammar with some text")
    return {"type": "grammar", "syntax": syntax, "definition": definition}


def _one_text(form: InputFormat) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    if form["type"] == "grammar":
        text["description"] = f"Text of this {form['syntax']} grammar:\n{form['definition']}"
    return {"type": "object", "properties": {"input": text}, "required": ["input"]}
