"""Calls whose arguments are a JSON object."""

from __future__ import annotations

from collections.abc import Sequence

from bushel.chat.structured_output.lark import Lark
from bushel.chat.tool_parsers.grammar.call_form import CallForm, CallGrammar, Knows, ToolGrammar


def arguments(lark: Lark, tool: ToolGrammar) -> str:
    schema = tool.schema if "type" in tool.schema else {"type": "object", **tool.schema}
    return lark.json(schema, exact=tool.exact)


def around_arguments(
    lark: Lark, tools: Sequence[ToolGrammar], before: str, after: str = ""
) -> list[str]:
    """Bodies with fixed text on both sides of the object; NAME in it is the tool's name."""
    return [
        f"{lark.mark(before.replace('NAME', tool.name))} {arguments(lark, tool)} {lark.mark(after)}"
        for tool in tools
    ]


def named_objects(lark: Lark, tools: Sequence[ToolGrammar], key: str = "arguments") -> list[str]:
    """Bodies like {"name": "read", "arguments": {…}}"""
    return around_arguments(lark, tools, f'{{"name": "NAME", "{key}": ', "}")


def separate_objects(
    open: str, close: str, between: str = "", key: str = "arguments"
) -> CallGrammar:
    """Each call between markers of its own."""

    def grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
        bodies = named_objects(lark, tools, key)
        return CallForm(bodies, open=open, close=close, between=between, single=not between)

    return grammar


def object_list(begin: str, end: str) -> CallGrammar:
    """All calls in one list."""

    def grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
        return CallForm(named_objects(lark, tools), begin=f"{begin}[", between=", ", end=f"]{end}")

    return grammar
