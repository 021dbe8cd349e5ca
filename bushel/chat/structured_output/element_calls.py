"""Calls whose arguments come one by one, as text between tags.

A string is written as it is, up to the closing tag; other values as JSON. How the reader of
replies tells them apart (`chat.reply.argument_values`) decides how they are written here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bushel.chat.reply.argument_values import is_text, kinds
from bushel.chat.structured_output.call_form import CallForm, ToolGrammar, Write, ordered
from bushel.chat.structured_output.json_schema import Schema, listed, resolved, rooted
from bushel.chat.structured_output.lark import ANY, ANY_TEXT, Lark, quoted
from bushel.core import RequestError

Knows = Callable[[str], bool]

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


def members(tool: ToolGrammar) -> list[tuple[str, Any, bool]]:
    """Name and schema of each argument, and whether it is required."""
    schema = resolved(tool.schema, tool.schema)
    found = schema.get("properties") or {}
    if tool.exact and any(key in schema for key in ("anyOf", "oneOf", "allOf")):
        raise RequestError(
            f"The arguments of {tool.name} are a choice of schemas, which this model's calls "
            "cannot be held to. Give them as one object's properties.",
            code="invalid_grammar",
            param="tools",
        )
    required = schema.get("required") or ()
    return [(key, inside, key in required) for key, inside in found.items()]


def value(lark: Lark, tool: ToolGrammar, inside: Any, tags: Tags) -> str:
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
    strings = [it for it in branches if "string" in kinds(it)]
    ways = [_words(lark, it, tags, f" & ~{_JSON}") for it in strings]
    return f"({' | '.join(ways)} | {lark.json(other, exact=tool.exact)} {close})"


def _words(lark: Lark, schema: Any, tags: Tags, besides: str) -> str:
    """A string as it is, and what closes it; also other values that a schema lists."""
    values = listed(schema)
    if values is not None:
        texts = [it if isinstance(it, str) else json.dumps(it) for it in values]
        maybe = "?" if "" in texts else ""
        return f"({' | '.join(quoted(it) for it in texts if it)}){maybe} {lark.mark(tags.close)}"
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


def slashed(pattern: str) -> str:
    """A regular expression to stand between slashes."""
    return pattern.replace("\\/", "/").replace("/", "\\/").replace("\n", "\\n")


def each(lark: Lark, tool: ToolGrammar, tags: Tags) -> list[tuple[str, bool]]:
    """All arguments, (text, required) each."""
    found = []
    for key, inside, required in members(tool):
        string = "string" in kinds(inside) and kinds(inside) != _ALL
        kind = "string" if string else next(iter(sorted(kinds(inside))))
        said = "true" if string else "false"
        open = tags.open.replace("KIND", kind).replace("TEXT", said).replace("KEY", key)
        own = Tags(open, tags.close.replace("KEY", key), tags.never)
        found.append((f"{lark.mark(open)} {value(lark, tool, inside, own)}", required))
    return found


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
) -> Write:
    """NAME in `head` is the tool's."""

    def body(lark: Lark, tool: ToolGrammar) -> str:
        given = each(lark, tool, tags)
        inside = [text if required else f"({text})?" for text, required in given]
        others = tool.schema.get("additionalProperties", True) is not False
        if not given and others and "KEY" not in tags.close:
            before, after = tags.open.split("KEY")
            shown = after.replace("KIND", "string").replace("TEXT", "true")
            free = lark.upto(tags.close, (*tags.never, tags.close.strip()))
            inside = [f"({lark.mark(before)} {_KEY} {lark.mark(shown)} {free})*"]
        parts = (lark.mark(head.replace("NAME", tool.name)), *inside, lark.mark(tail))
        return " ".join(part for part in parts if part)

    def write(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
        bodies = [lark.rule(body(lark, tool)) for tool in tools]
        return CallForm(bodies, begin, open, close, between, end)

    return write


def glm(before: str, after: str, begin: str = "", end: str = "", separator: str = "") -> Write:
    """before, after: what the tags' names begin and end with."""

    def tag(name: str) -> str:
        slash = "/" if name.startswith("/") else ""
        return f"<{slash}{before}{name.removeprefix('/')}{after}>"

    tags = Tags(
        f"{tag('arg_key')}KEY{tag('/arg_key')}\n{tag('arg_value')}", f"{tag('/arg_value')}\n"
    )
    return elements(
        tags,
        f"NAME{separator}\n",
        "",
        begin=begin,
        open=tag("tool_call"),
        close=tag("/tool_call"),
        between="\n",
        end=end,
    )


def dsml(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    mark = "｜DSML｜"  # noqa: RUF001
    calls = f"{mark}tool_calls" if knows(f"{mark}tool_calls") else f"{mark}function_calls"
    return elements(
        Tags(f'<{mark}parameter name="KEY" string="TEXT">', f"</{mark}parameter>\n"),
        f'<{mark}invoke name="NAME">\n',
        f"</{mark}invoke>\n",
        begin=f"<{calls}>\n",
        end=f"</{calls}>",
    )(lark, tools, knows)


def gemma(open: str, close: str, quote: str) -> Write:
    """call:read{path:<|"|>a.txt<|"|>,lines:[1,2]}"""

    def write(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
        bodies = []
        for tool in tools:
            given = []
            for key, inside, required in members(tool):
                texts = listed(inside)
                words = is_text(inside) and texts is None
                if words:
                    shown = f"{lark.mark(quote)} {lark.upto(quote, (quote,), text_of(inside))}"
                else:
                    shown = lark.json(rooted(inside, tool.schema), exact=tool.exact)
                given.append((f"{quoted(f'{key}:')} {shown}", required))
            inside = ordered(lark, given, ",")
            bodies.append(f'{quoted(f"call:{tool.name}{{")} {inside} "}}"')
        return CallForm(bodies, open=open, close=close)

    return write


def pythonic(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    """[read(path="a.txt", lines=[1, 2])]"""
    bodies = []
    for tool in tools:
        given = [
            (
                f"{quoted(f'{key}=')} {lark.json(rooted(inside, tool.schema), exact=tool.exact)}",
                required,
            )
            for key, inside, required in members(tool)
        ]
        bodies.append(f'{quoted(f"{tool.name}(")} {ordered(lark, given, ", ")} ")"')
    if knows("<|tool_call_start|>"):
        marks = "<|tool_call_start|>[", "]<|tool_call_end|>"
        return CallForm(bodies, begin=marks[0], between=", ", end=marks[1])
    return CallForm(bodies, begin="[", between=", ", end="]", leading=True)
