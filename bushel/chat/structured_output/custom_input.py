"""What the text of a custom tool is held to: its grammar, as the schema of a call's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bushel.chat.structured_output.json_schema import MOST_PATTERN, Schema
from bushel.chat.structured_output.lark_notation import NotLark
from bushel.chat.structured_output.lark_to_regex import regex_of_lark
from bushel.core import RequestError


def has_grammar(tool: Mapping[str, Any]) -> bool:
    return (tool.get("input") or {}).get("type") == "grammar"


def input_schema(where: str, form: Mapping[str, Any]) -> Schema:
    """form: a `core.conversation.InputFormat` with a grammar."""
    text = {"type": "string", "pattern": f"^(?:{_pattern(where, form)})$"}
    return {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }


def _pattern(where: str, form: Mapping[str, Any]) -> str:
    definition = str(form["definition"])
    if form["syntax"] == "regex":
        if len(definition) > MOST_PATTERN:
            raise _refused(where, f"has more than {MOST_PATTERN} characters")
        ends = definition.endswith("$") and not definition.endswith("\\$")
        return definition.removeprefix("^").removesuffix("$" if ends else "")
    try:
        return regex_of_lark(definition)
    except NotLark as error:
        raise _refused(where, str(error)) from None


def _refused(where: str, why: str) -> RequestError:
    return RequestError(
        f"The grammar of {where} cannot be used: it {why}.", code="invalid_grammar", param="tools"
    )
