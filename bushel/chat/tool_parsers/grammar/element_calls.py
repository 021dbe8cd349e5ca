"""Calls whose arguments come one by one, as text between tags.

A string is written as it is, up to the closing tag; other values as JSON. How the reader of
replies tells them apart (`reading.argument_values`) decides how they are written here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bushel.chat.structured_output.json_schema import Schema, listed, resolved, rooted
from bushel.chat.structured_output.lark import ANY, ANY_TEXT, Lark, quoted, slashed
from bushel.chat.tool_parsers.grammar.call_form import CallForm, CallGrammar, Knows, ToolGrammar
from bushel.chat.tool_parsers.reading.argument_values import is_text, kinds
from bushel.core import RequestError

_ALL = kinds({})
# Text that is read as something else than a string where that may come too.
_JSON = r'/\s*(-?[0-9]+(\.[0-9]+)?([eE][+\-]?[0-9]+)?|true|false|null|[\[{"]' + ANY + r")\s*/"
_KEY = "/[A-Za-z_][A-Za-z0-9_.\\-]{0,63}/"


@dataclass(frozen=True)
class Tags:
    """KEY in them is the argument's name, KIND its type and TEXT whether it is a string."""

    open: str
    close: str
    never: tuple[str, ...] = ()  # what else would end a string


def parameters(tool: ToolGrammar) -> list[tuple[str, Any, bool]]:
    """Name and schema of each argument, and whether it is required."""
    schema = resolved(tool.schema, tool.schema)
    properties = schema.get("properties") or {}
    if tool.exact and any(key in schema for key in ("anyOf", "oneOf", "allOf")):
        raise RequestError(
            f"The arguments of {tool.name} are a choice of schemas, which this model's calls "
            "cannot be held to. Give them as one object's properties.",
            code="invalid_grammar",
            param="tools",
        )
    required = schema.get("required") or ()
    return [(name, inside, name in required) for name, inside in properties.items()]


def _value(lark: Lark, tool: ToolGrammar, inside: Any, tags: Tags) -> str:
    """One argument's value and what closes it."""
    close = lark.mark(tags.close)
    if listed(inside) is not None or is_text(inside):
        return _words(lark, inside, tags, "")
    schema = rooted(inside, tool.schema)
    allowed = kinds(inside)
    if allowed == _ALL or "string" not in allowed:
        return f"{lark.json(schema, exact=tool.exact)} {close}"
    other: Schema = {"allOf": [schema, {"type": sorted(allowed - {"string"})}]}
    if "$defs" in schema:
        other["$defs"] = schema.pop("$defs")
    branches = inside.get("anyOf") or inside.get("oneOf") or [inside]
    strings = [branch for branch in branches if "string" in kinds(branch)]
    ways = [_words(lark, branch, tags, f" & ~{_JSON}") for branch in strings]
    return f"({' | '.join(ways)} | {lark.json(other, exact=tool.exact)} {close})"


def _words(lark: Lark, schema: Any, tags: Tags, besides: str) -> str:
    """A string as it is, and what closes it; also other values that a schema lists."""
    values = listed(schema)
    if values is not None:
        texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
        maybe = "?" if "" in texts else ""
        return (
            f"({' | '.join(quoted(text) for text in texts if text)}){maybe} {lark.mark(tags.close)}"
        )
    never = (*tags.never, tags.close.strip())
    return lark.upto(tags.close, never, f"{text_of(schema)}{besides}")


def text_of(schema: Any) -> str:
    """What a string may be, as a terminal's body."""
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    bounded = least or most is not None
    body = f"/(?s:.{{{least},{'' if most is None else most}}})/" if bounded else ANY_TEXT
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return body
    start = "" if pattern.startswith("^") else ANY
    end = "" if pattern.endswith("$") and not pattern.endswith("\\$") else ANY
    inner = pattern.removeprefix("^").removesuffix("" if end else "$")
    return f"{body} & /{start}({slashed(inner)}){end}/"


def _arguments(lark: Lark, tool: ToolGrammar, tags: Tags) -> list[tuple[str, bool]]:
    """All arguments, (text, required) each."""
    arguments = []
    for name, inside, required in parameters(tool):
        string = "string" in kinds(inside) and kinds(inside) != _ALL
        kind = "string" if string else next(iter(sorted(kinds(inside))))
        is_string = "true" if string else "false"
        open = tags.open.replace("KIND", kind).replace("TEXT", is_string).replace("KEY", name)
        own = Tags(open, tags.close.replace("KEY", name), tags.never)
        arguments.append((f"{lark.mark(open)} {_value(lark, tool, inside, own)}", required))
    return arguments


def elements(
    tags: Tags,
    head: str,
    tail: str,
    *,
    begin: str = "",
    open: str = "",
    close: str = "",
    between: str = "",
    end: str = "",
) -> CallGrammar:
    """Each call one element, from `head` to `tail`; NAME in `head` is the tool's name."""

    def body(lark: Lark, tool: ToolGrammar) -> str:
        arguments = _arguments(lark, tool, tags)
        inside = [text if required else f"({text})?" for text, required in arguments]
        others = tool.schema.get("additionalProperties", True) is not False
        if not arguments and others and "KEY" not in tags.close:
            before, after = tags.open.split("KEY")
            shown = after.replace("KIND", "string").replace("TEXT", "true")
            free = lark.upto(tags.close, (*tags.never, tags.close.strip()))
            inside = [f"({lark.mark(before)} {_KEY} {lark.mark(shown)} {free})*"]
        parts = (lark.mark(head.replace("NAME", tool.name)), *inside, lark.mark(tail))
        return " ".join(part for part in parts if part)

    def grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
        bodies = [lark.rule(body(lark, tool)) for tool in tools]
        return CallForm(bodies, begin, open, close, between, end)

    return grammar
